//! A connection that this process has attached.

use std::fmt;
use std::sync::Arc;

use tenure_core::error::{Error, Result};
use tenure_core::id::{ConnectionId, SessionId};
use tenure_core::membership::EndReason;
use tenure_core::session::{Data, DetachOutcome, Epoch, How, PatchOutcome, Session};
use tenure_core::timeout::Timeout;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::handles::{ConnectionLost, ConnectionStatus, LiveHandle};
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// A connection of a session, held under the tenure of a membership.
///
/// End it with [`Connection::detach`]; dropping it detaches in the background, best effort. Both carry the epoch of the
/// last attach, so a late detach cannot hit a client that has returned. After the membership has joined again, or the
/// store has lost the end of its data, the connection is attached again automatically. If its session was reaped in the
/// meantime, the session is recreated without its data, and [`Connection::renewed`] reports it.
pub struct Connection {
    shared: Arc<Shared>,
    handle: Arc<LiveHandle>,
    how: How,
    session: Box<Session>,
    /// The renewals that [`Connection::renewed`] has reported.
    reported: u64,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("session", &self.handle.session)
            .field("connection", &self.handle.connection)
            .field("status", &*self.handle.status.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.connections.begin_detach(&self.handle, None);
    }
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>, handle: Arc<LiveHandle>, how: How, session: Box<Session>) -> Self {
        Self {
            shared: Arc::clone(shared),
            handle,
            how,
            session,
            reported: 0,
        }
    }

    /// The connection's name.
    #[must_use]
    pub fn id(&self) -> &ConnectionId {
        &self.handle.connection
    }

    /// The session's name.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.handle.session
    }

    /// The session as of the attach: its data, alias and times.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the attach did to the session. When a reply was lost and the attach repeated, this is [`How::Attached`],
    /// whatever the first attempt did.
    #[must_use]
    pub fn how(&self) -> How {
        self.how
    }

    /// The epoch of its last attach whose reply arrived.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.status.borrow().epoch
    }

    /// Cancelled once this process no longer holds the connection; close the socket then. See [`ConnectionLost`]. An
    /// attach of the same connection name by another process is not reported here, so use each name once (one per
    /// socket).
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.handle.lost.clone()
    }

    /// Watches the status; a slow reader sees only the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<ConnectionStatus> {
        self.handle.status.subscribe()
    }

    /// Waits until a re-attach finds a different session than before, because the old one was reaped or lost while this
    /// process could not keep it. Returns its present epoch. The new session has the alias and grace of the attach;
    /// restore its data. One call reports all renewals so far. Pending for ever once the connection is lost. Cancel
    /// safe.
    pub async fn renewed(&mut self) -> Epoch {
        let mut status = self.handle.status.subscribe();
        let reported = self.reported;
        let news = status.wait_for(|status| status.renewals > reported && status.lost.is_none());
        // The sender lives as long as the handle.
        let Ok(news) = news.await.map(|status| status.clone()) else {
            return std::future::pending().await;
        };
        self.reported = news.renewals;
        news.epoch
    }

    /// Changes the session's data under the membership's tenure: each given field replaces the old one, and `null`
    /// removes it.
    ///
    /// # Errors
    /// `Ended` when the tenure has ended (the membership may be joining again), `Invalid` for an exceeded limit,
    /// `TooLate`, `Unavailable`; repeating it is safe.
    pub async fn patch(&self, data: &Data) -> Result<PatchOutcome> {
        let shared = &self.shared;
        let tenure = shared.acting_tenure()?;
        let store = &shared.context.store;
        let (session, call) = (&self.handle.session, shared.call(PATIENCE));
        let patch = store.patch_session(&shared.group, session, Some(&tenure), data, call);
        let done = shared.context.act(patch).await;
        done.inspect_err(|error| shared.heed(error))
    }

    /// Detaches the connection and waits for the outcome. When it was the session's last one, the grace begins. A
    /// detach without a reply is repeated; the outcome then does not contain the remaining grace.
    ///
    /// # Errors
    /// `Ended` when the tenure has ended (the janitor then detaches its connections). `Unavailable` when the store does
    /// not answer: the detach is retried in the background for as long as the tenure lasts.
    pub async fn detach(self) -> Result<DetachOutcome> {
        let (shared, handle) = (Arc::clone(&self.shared), Arc::clone(&self.handle));
        let over = || {
            let ended = |reason| Err(Error::ended(shared.tenure(), reason));
            match &handle.status.borrow().lost {
                Some(ConnectionLost::Replaced) => Ok(DetachOutcome::Stale {
                    epoch: shared.connections.epoch_of(&handle.key()).unwrap_or(self.epoch()),
                }),
                Some(ConnectionLost::TenureEnded) | None => ended(EndReason::Left),
                Some(_) => Ok(DetachOutcome::NotAttached),
            }
        };
        if handle.lost.is_cancelled() {
            return over();
        }
        let (answer, answered) = oneshot::channel();
        shared.connections.begin_detach(&handle, Some(answer));
        let waiting = async { answered.await.unwrap_or_else(|_| over()) };
        let bound = Timeout::change(PATIENCE * 2);
        bound.call(&*shared.context.clock, "the store", waiting).await
    }
}
