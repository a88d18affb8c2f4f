//! The connections of a membership: what is attached, as far as this process knows, and what is left to attach or
//! detach.
//!
//! An entry lives from the reply to its attach until the store has confirmed its detach. Every detach carries the
//! epoch, so the store ignores a late one. When the epoch is unknown (an attach had no reply, or may still take
//! effect), attaching once more reads it. A detach without an epoch is sent only when no attach of that connection is
//! in flight or can still take effect, and no attach begins while such a detach can.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Alias, ConnectionId, SessionId, TenureId};
use tenure_core::membership::EndReason;
use tenure_core::session::{Attach, DetachOutcome, Epoch, Limit, Session};
use tenure_core::time::StoreTime;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// A connection of a session.
pub(super) type ConnectionKey = (SessionId, ConnectionId);

/// Why this process no longer holds a connection. Final.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionLost {
    /// The membership has ended: the janitor detaches its connections.
    TenureEnded,
    /// This process attached the same connection again; only the newer handle is valid.
    Replaced,
    /// It was detached, or its handle was dropped.
    Detached,
    /// It was attached with `resume_only`, and its session no longer exists.
    Gone,
    /// Its session had to be recreated, and its alias belongs to another session by now.
    AliasTaken {
        /// The session that has the alias.
        by: SessionId,
    },
    /// Attaching it again would exceed a limit of the session.
    Full {
        /// The limit.
        of: Limit,
    },
}

/// The state of a connection at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The epoch of its last attach whose reply arrived.
    pub epoch: Epoch,
    /// When its session was created. A different time means a different session of the same name.
    pub created_at: StoreTime,
    /// How often a re-attach found a different session, because the old one was reaped or lost.
    pub renewals: u64,
    /// Why the connection is lost; `None` while it is held.
    pub lost: Option<ConnectionLost>,
}

/// What the user's handle and the table share about a connection.
pub(super) struct LiveHandle {
    pub(super) session: SessionId,
    pub(super) connection: ConnectionId,
    /// The alias and grace of a session that has to be recreated.
    alias: Option<Alias>,
    grace: Option<Duration>,
    pub(super) resume_only: bool,
    pub(super) status: watch::Sender<ConnectionStatus>,
    pub(super) lost: CancellationToken,
}

impl fmt::Debug for LiveHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.connection)
    }
}

impl LiveHandle {
    pub(super) fn new(asked: &Attach, session: &Session) -> Arc<Self> {
        let status = ConnectionStatus {
            epoch: session.epoch,
            created_at: session.created_at,
            renewals: 0,
            lost: None,
        };
        Arc::new(Self {
            session: asked.session.clone(),
            connection: asked.connection.clone(),
            alias: asked.alias.clone(),
            grace: asked.grace,
            resume_only: asked.resume_only,
            status: watch::Sender::new(status),
            lost: CancellationToken::new(),
        })
    }

    pub(super) fn key(&self) -> ConnectionKey {
        (self.session.clone(), self.connection.clone())
    }

    /// The request for a re-attach. With `create`, the session is created as the user asked; without, an existing one
    /// is resumed unchanged.
    pub(super) fn reattach_request(&self, create: bool) -> Attach {
        Attach {
            alias: self.alias.clone().filter(|_| create),
            grace: self.grace.filter(|_| create),
            resume_only: !create,
            ..Attach::new(self.session.clone(), self.connection.clone())
        }
    }

    /// Records a re-attach. Returns whether it is a different session than before.
    fn attached(&self, session: &Session) -> bool {
        let mut renewed = false;
        self.status.send_modify(|status| {
            renewed = session.created_at != status.created_at;
            status.epoch = session.epoch;
            status.created_at = session.created_at;
            status.renewals += u64::from(renewed);
        });
        renewed
    }

    /// Marks the connection as lost. The first reason stays.
    pub(super) fn lose(&self, why: ConnectionLost) {
        self.status.send_if_modified(|status| {
            let first = status.lost.is_none();
            status.lost.get_or_insert(why);
            first
        });
        self.lost.cancel();
    }
}

/// Receives the outcome of a detach.
pub(super) type DetachReply = oneshot::Sender<Result<DetachOutcome>>;

/// A detach that the store has not confirmed.
#[derive(Debug, Default)]
pub(super) struct PendingDetach {
    pub(super) answer: Option<DetachReply>,
    /// An earlier attempt with an unknown outcome may have detached it.
    pub(super) tried: bool,
    /// A detach without an epoch may take effect until then.
    pub(super) unconditional_until: Option<Mono>,
}

impl PendingDetach {
    pub(super) fn answer(self, outcome: Result<DetachOutcome>) {
        if let Some(answer) = self.answer {
            // It only fails when the caller has gone away.
            drop(answer.send(outcome));
        }
    }
}

#[derive(Debug)]
pub(super) struct ConnectionEntry {
    /// `None` when the connection was attached but never handed to the user.
    pub(super) handle: Option<Arc<LiveHandle>>,
    /// The tenure under which it is, or may be, attached.
    pub(super) under: TenureId,
    /// The epoch at the store, when it is certain.
    pub(super) known_epoch: Option<Epoch>,
    /// An attach without a reply may take effect until then.
    pub(super) unanswered_until: Option<Mono>,
    pub(super) pending_detach: Option<PendingDetach>,
}

/// All connections of a membership; see the module.
#[derive(Debug, Default)]
pub(crate) struct LiveHandles {
    state: Mutex<HandleTable>,
    /// Notified when there is something to attach or detach.
    pub(crate) work: Notify,
    /// Notified when a detach without an epoch was answered.
    pub(super) detach_finished: Notify,
}

#[derive(Debug, Default)]
pub(super) struct HandleTable {
    pub(super) entries: BTreeMap<ConnectionKey, ConnectionEntry>,
    /// The entries to detach.
    pub(super) detaching: BTreeSet<ConnectionKey>,
    /// The entries to attach again.
    pub(super) to_reattach: BTreeSet<ConnectionKey>,
    /// How many attaches by the user are in flight, per connection.
    pub(super) attaching: BTreeMap<ConnectionKey, u32>,
    /// How often all entries became doubtful.
    doubts: u64,
    /// The membership has ended.
    pub(super) over: bool,
}

/// The doubt count before a call. The reply to that call is valid only while the count is the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct DoubtCount {
    doubts: u64,
}

impl LiveHandles {
    /// How many connections this process holds.
    pub(super) fn held(&self) -> usize {
        let state = self.state();
        state.entries.len() - state.detaching.len()
    }

    /// Marks every connection for re-attach: the store may have lost it, or it was attached under an earlier tenure.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        state.doubts += 1;
        state.to_reattach = state.entries.keys().cloned().collect();
        drop(state);
        self.work.notify_one();
    }

    /// The doubt count; take it before a call.
    pub(super) fn doubt_count(&self) -> DoubtCount {
        DoubtCount {
            doubts: self.state().doubts,
        }
    }

    /// Ends all connections, because the membership has ended.
    pub(super) fn end(&self, tenure: &TenureId, reason: EndReason) {
        let entries = {
            let mut state = self.state();
            state.over = true;
            state.detaching.clear();
            state.to_reattach.clear();
            std::mem::take(&mut state.entries)
        };
        for entry in entries.into_values() {
            if let Some(handle) = entry.handle {
                handle.lose(ConnectionLost::TenureEnded);
            }
            if let Some(pending) = entry.pending_detach {
                pending.answer(Err(Error::ended(tenure, reason)));
            }
        }
    }

    /// Adds a connection that was attached for the user. `unanswered_until`: an earlier attempt may still take effect
    /// until then. `doubts_before`: the doubt count before the call; `None` when the store may have lost the connection
    /// since.
    pub(super) fn insert(
        &self,
        handle: &Arc<LiveHandle>,
        tenure: &TenureId,
        epoch: Epoch,
        unanswered_until: Option<Mono>,
        doubts_before: Option<DoubtCount>,
    ) {
        let key = handle.key();
        let mut state = self.state();
        let again = doubts_before.is_none_or(|doubts_before| doubts_before.doubts != state.doubts);
        if state.over {
            drop(state);
            return handle.lose(ConnectionLost::TenureEnded);
        }
        let before = state.entries.remove(&key);
        let is_newer = |before: &ConnectionEntry| before.under == *tenure && before.known_epoch > Some(epoch);
        if before.as_ref().is_some_and(is_newer) {
            // Two attaches of one connection were answered out of order. The one with the higher epoch counts. Epochs
            // of an earlier tenure do not count: a store that lost its data and its time may have issued higher ones.
            state.entries.extend(before.map(|before| (key, before)));
            drop(state);
            return handle.lose(ConnectionLost::Replaced);
        }
        let unanswered_until = before
            .as_ref()
            .and_then(|before| before.unanswered_until)
            .max(unanswered_until);
        let entry = ConnectionEntry {
            handle: Some(Arc::clone(handle)),
            under: tenure.clone(),
            known_epoch: Some(epoch).filter(|_| unanswered_until.is_none()),
            unanswered_until,
            pending_detach: None,
        };
        state.detaching.remove(&key);
        if again || unanswered_until.is_some() {
            state.to_reattach.insert(key.clone());
        } else {
            state.to_reattach.remove(&key);
        }
        state.entries.insert(key, entry);
        drop(state);
        if let Some(before) = before {
            if let Some(handle) = before.handle {
                handle.lose(ConnectionLost::Replaced);
            }
            if let Some(pending) = before.pending_detach {
                pending.answer(Ok(DetachOutcome::Stale { epoch }));
            }
        }
        self.work.notify_one();
    }

    /// Records an attach under this tenure that had no reply and may take effect until then.
    pub(super) fn attach_unanswered(&self, key: &ConnectionKey, tenure: &TenureId, until: Mono) {
        let mut state = self.state();
        if state.over {
            return;
        }
        let entry = state.entries.entry(key.clone()).or_insert_with(|| ConnectionEntry {
            handle: None,
            under: tenure.clone(),
            known_epoch: None,
            unanswered_until: None,
            pending_detach: Some(PendingDetach::default()),
        });
        entry.under = tenure.clone();
        entry.known_epoch = None;
        entry.unanswered_until = entry.unanswered_until.max(Some(until));
        if entry.pending_detach.is_some() {
            state.detaching.insert(key.clone());
        } else {
            // The user holds it: the re-attach reads its epoch.
            state.to_reattach.insert(key.clone());
        }
        drop(state);
        self.work.notify_one();
    }

    /// Takes a connection from its handle and detaches it in the background.
    pub(super) fn begin_detach(&self, handle: &Arc<LiveHandle>, answer: Option<DetachReply>) {
        let key = handle.key();
        let mut state = self.state();
        let entry = state.entries.get_mut(&key);
        let ours = entry.filter(|entry| entry.handle.as_ref().is_some_and(|held| Arc::ptr_eq(held, handle)));
        let Some(entry) = ours else { return };
        if entry.pending_detach.is_some() {
            return;
        }
        entry.pending_detach = Some(PendingDetach {
            answer,
            ..PendingDetach::default()
        });
        state.to_reattach.remove(&key);
        state.detaching.insert(key);
        drop(state);
        handle.lose(ConnectionLost::Detached);
        self.work.notify_one();
    }

    /// Records a re-attach in the handle. Returns whether it is a different session than before.
    pub(super) fn attached(
        &self,
        handle: &Arc<LiveHandle>,
        session: &Session,
        doubts_before: Option<DoubtCount>,
    ) -> bool {
        let key = handle.key();
        let mut state = self.state();
        let again = doubts_before.is_none_or(|doubts_before| doubts_before.doubts != state.doubts);
        let Some(entry) = state.entries.get_mut(&key) else {
            return false;
        };
        // Also when another handle has replaced this one: the store has one connection of that name. An epoch is known
        // if that handle's attach was answered first; the epoch from before the re-attach is forgotten.
        let newest = entry.known_epoch < Some(session.epoch);
        entry.known_epoch = entry.known_epoch.max(Some(session.epoch));
        entry.unanswered_until = None;
        let current = entry.handle.clone().filter(|_| newest);
        if !again {
            state.to_reattach.remove(&key);
        }
        drop(state);
        current.is_some_and(|handle| handle.attached(session))
    }

    /// Removes a connection that could not be attached again.
    pub(super) fn lost(&self, handle: &Arc<LiveHandle>, why: ConnectionLost) {
        let key = handle.key();
        let mut state = self.state();
        let held = state.entries.get(&key).and_then(|entry| entry.handle.as_ref());
        let ours = held.is_some_and(|held| Arc::ptr_eq(held, handle));
        let pending = ours.then(|| state.remove(&key)).flatten();
        drop(state);
        if let Some(pending) = pending {
            pending.answer(Ok(DetachOutcome::NotAttached));
        }
        handle.lose(why);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HandleTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandleTable {
    /// Removes an entry. Returns its pending detach.
    pub(super) fn remove(&mut self, key: &ConnectionKey) -> Option<PendingDetach> {
        self.detaching.remove(key);
        self.to_reattach.remove(key);
        self.entries.remove(key).and_then(|entry| entry.pending_detach)
    }
}
