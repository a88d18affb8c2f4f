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

use super::book::{ConnectionLost, ConnectionStatus, Seat};
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// A connection of a session, held under the tenure of a membership for as long as that lasts.
///
/// [`Connection::detach`] is how it ends well; dropping it detaches in the background, best effort. Either carries the
/// epoch of its last attach, so that one that comes late cannot hit a client who is back already. When the membership had
/// to join again, or the store has lost the end of its data, the connection is attached again by itself; if the session was
/// reaped meanwhile it is made anew, without its data, and [`Connection::renewed`] tells.
pub struct Connection {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    how: How,
    session: Box<Session>,
    /// What [`Connection::renewed`] has told of.
    told: u64,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("session", &self.seat.session)
            .field("connection", &self.seat.connection)
            .field("status", &*self.seat.status.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.connections.leave(&self.seat, None);
    }
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>, seat: Arc<Seat>, how: How, session: Box<Session>) -> Self {
        Self {
            shared: Arc::clone(shared),
            seat,
            how,
            session,
            told: 0,
        }
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &ConnectionId {
        &self.seat.connection
    }

    /// The session's name.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.seat.session
    }

    /// The session as of the attach: its data, alias and times.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the attach did to the session. After a lost reply the attach is asked again, and then this is
    /// [`How::Attached`] whatever the unheard one did.
    #[must_use]
    pub fn how(&self) -> How {
        self.how
    }

    /// Its last attach, as far as it was heard.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.seat.status.borrow().epoch
    }

    /// Cancelled once it is no longer ours: see [`ConnectionLost`]. Close the socket then. That another process attached a
    /// connection of the same name is not told here; use names that are used once (one per socket).
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.seat.lost.clone()
    }

    /// Every change; a slow reader sees the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<ConnectionStatus> {
        self.seat.status.subscribe()
    }

    /// Waits until its session was found to be another than before, because the old one was reaped or lost while this
    /// process could not keep it, and answers its present epoch. The alias and grace of the attach are in place; put the
    /// data there that belongs there. Told once for all that happened until then. Pending for ever once the connection is
    /// lost. Safe to cancel.
    pub async fn renewed(&mut self) -> Epoch {
        let mut status = self.seat.status.subscribe();
        let told = self.told;
        let news = status.wait_for(|status| status.renewals > told && status.lost.is_none());
        // The sender lives as long as the seat.
        let Ok(news) = news.await.map(|status| status.clone()) else {
            return std::future::pending().await;
        };
        self.told = news.renewals;
        news.epoch
    }

    /// Changes the data of the session, under our tenure: each field given replaces the old one, and `null` removes it.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be joining again), `Invalid` for what breaks a limit,
    /// `TooLate`, `Unavailable`; doing it again is safe.
    pub async fn patch(&self, data: &Data) -> Result<PatchOutcome> {
        let shared = &self.shared;
        let tenure = shared.acting_tenure()?;
        let store = &shared.context.store;
        let (session, call) = (&self.seat.session, shared.call(PATIENCE));
        let patch = store.patch_session(&shared.group, session, Some(&tenure), data, call);
        let done = shared.context.act(patch).await;
        done.inspect_err(|error| shared.heed(error))
    }

    /// Detaches it, and waits for what that came to. When it was the session's last one, the grace begins. A detach whose
    /// reply was lost is sent again; then the grace is not told.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the janitor then detaches what it had). `Unavailable` when the store does not
    /// answer: it is tried again in the background for as long as the tenure lasts.
    pub async fn detach(self) -> Result<DetachOutcome> {
        let (shared, seat) = (Arc::clone(&self.shared), Arc::clone(&self.seat));
        let over = || {
            let ended = |reason| Err(Error::ended(shared.tenure(), reason));
            match &seat.status.borrow().lost {
                Some(ConnectionLost::Overtaken) => Ok(DetachOutcome::Stale {
                    epoch: shared.connections.epoch_of(&seat.place()).unwrap_or(self.epoch()),
                }),
                Some(ConnectionLost::TenureEnded) | None => ended(EndReason::Left),
                Some(_) => Ok(DetachOutcome::NotAttached),
            }
        };
        if seat.lost.is_cancelled() {
            return over();
        }
        let (answer, answered) = oneshot::channel();
        shared.connections.leave(&seat, Some(answer));
        let waiting = async { answered.await.unwrap_or_else(|_| over()) };
        let bound = Timeout::change(PATIENCE * 2);
        bound.call(&*shared.context.clock, "the store", waiting).await
    }
}
