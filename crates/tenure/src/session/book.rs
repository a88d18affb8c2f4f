//! The connections of a membership: what is attached, as far as this process knows, and what is still to be done about it.
//!
//! A connection stays in the book from the answer to its attach until the store has confirmed its detach. Its epoch goes
//! with every detach, so that a late one is ignored. Where the epoch is not known (an attach was not heard, or may still
//! take effect), it is learned by attaching once more; a detach without an epoch is only sent when no attach of that
//! connection is under way or can come late, and none is begun while one may.

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

/// Which connection of which session.
pub(super) type Place = (SessionId, ConnectionId);

/// Why a connection is no longer this process's. Never undone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionLost {
    /// The membership is over: its janitors detach what it had.
    TenureEnded,
    /// This process attached the same connection once more; the newer handle counts.
    Overtaken,
    /// It was detached, or its handle dropped.
    Detached,
    /// It was to be attached again and only to be resumed, and the session is gone.
    Gone,
    /// It was to be attached again, its session had to be made anew, and its alias is another's by now.
    AliasTaken {
        /// Whose.
        by: SessionId,
    },
    /// It was to be attached again, and the session cannot take more.
    Full {
        /// More than this.
        of: Limit,
    },
}

/// A connection at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Its last attach, as far as it was heard.
    pub epoch: Epoch,
    /// When its session was made. Another time means another stretch of that session's life.
    pub created_at: StoreTime,
    /// How often its session was found to be another than before, because the old one was reaped or lost meanwhile.
    pub renewals: u64,
    /// Set once it is over.
    pub lost: Option<ConnectionLost>,
}

/// What a handle and the book share about a connection.
pub(super) struct Seat {
    pub(super) session: SessionId,
    pub(super) connection: ConnectionId,
    /// What the session gets if it has to be made anew.
    alias: Option<Alias>,
    grace: Option<Duration>,
    pub(super) resume_only: bool,
    pub(super) status: watch::Sender<ConnectionStatus>,
    pub(super) lost: CancellationToken,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.connection)
    }
}

impl Seat {
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

    pub(super) fn place(&self) -> Place {
        (self.session.clone(), self.connection.clone())
    }

    /// Asks for it again without changing anything about the session, or so that the session is made as it was asked for.
    pub(super) fn again(&self, anew: bool) -> Attach {
        Attach {
            alias: self.alias.clone().filter(|_| anew),
            grace: self.grace.filter(|_| anew),
            resume_only: !anew,
            ..Attach::new(self.session.clone(), self.connection.clone())
        }
    }

    /// It was attached again. Answers whether its session is another than before.
    fn attached(&self, session: &Session) -> bool {
        let mut renewed = false;
        self.status.send_modify(|status| {
            renewed = session.created_at != status.created_at;
            status.epoch = status.epoch.max(session.epoch);
            status.created_at = session.created_at;
            status.renewals += u64::from(renewed);
        });
        renewed
    }

    /// It is over; the first reason counts.
    pub(super) fn lose(&self, why: ConnectionLost) {
        self.status.send_if_modified(|status| {
            let first = status.lost.is_none();
            status.lost.get_or_insert(why);
            first
        });
        self.lost.cancel();
    }
}

/// Where to send what a detach came to, when somebody waits for it.
pub(super) type Answer = oneshot::Sender<Result<DetachOutcome>>;

/// A connection on its way out.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) answer: Option<Answer>,
    /// An attempt whose outcome is unknown may have done it.
    pub(super) tried: bool,
    /// An attempt without an epoch may take effect until then.
    pub(super) blind_until: Option<Mono>,
}

impl Leaving {
    pub(super) fn tell(self, outcome: Result<DetachOutcome>) {
        if let Some(answer) = self.answer {
            // It only fails when nobody waits any more.
            drop(answer.send(outcome));
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    /// `None` for what was attached and never handed to anybody.
    pub(super) seat: Option<Arc<Seat>>,
    /// The tenure that it is held under, or may be.
    pub(super) under: TenureId,
    /// The epoch at the store, when that is certain.
    pub(super) known: Option<Epoch>,
    /// An attach of it may take effect unheard until then.
    pub(super) unheard: Option<Mono>,
    pub(super) leaving: Option<Leaving>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Book {
    state: Mutex<State>,
    /// There is something to attach again or to detach.
    pub(crate) work: Notify,
    /// A detach without an epoch is over.
    pub(super) settled: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) entries: BTreeMap<Place, Entry>,
    /// Those of the entries that are on their way out.
    pub(super) leaving: BTreeSet<Place>,
    /// Those of the entries that are to be attached again.
    pub(super) behind: BTreeSet<Place>,
    /// How many attaches of the user are under way.
    pub(super) asking: BTreeMap<Place, u32>,
    /// How often a doubt arose about all of them.
    doubts: u64,
    /// The membership is over.
    pub(super) over: bool,
}

/// What an answer is about: it counts as it is unless a doubt arose since this was noted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noted {
    doubts: u64,
}

impl Book {
    /// How many connections this process has.
    pub(super) fn held(&self) -> usize {
        let state = self.state();
        state.entries.len() - state.leaving.len()
    }

    /// The store may have forgotten all of them, or they were held under an earlier tenure.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        state.doubts += 1;
        state.behind = state.entries.keys().cloned().collect();
        drop(state);
        self.work.notify_one();
    }

    /// Something is about to be asked for.
    pub(super) fn note(&self) -> Noted {
        Noted {
            doubts: self.state().doubts,
        }
    }

    /// The membership is over for good: so is everything in here.
    pub(super) fn end(&self, tenure: &TenureId, reason: EndReason) {
        let entries = {
            let mut state = self.state();
            state.over = true;
            state.leaving.clear();
            state.behind.clear();
            std::mem::take(&mut state.entries)
        };
        for entry in entries.into_values() {
            if let Some(seat) = entry.seat {
                seat.lose(ConnectionLost::TenureEnded);
            }
            if let Some(leaving) = entry.leaving {
                leaving.tell(Err(Error::ended(tenure, reason)));
            }
        }
    }

    /// A connection was attached for the user. `unheard`: an earlier attempt of it may still take effect until then.
    /// `noted`: before it was asked for; `None` when the store may have lost it since.
    pub(super) fn enter(
        &self,
        seat: &Arc<Seat>,
        tenure: &TenureId,
        epoch: Epoch,
        unheard: Option<Mono>,
        noted: Option<Noted>,
    ) {
        let place = seat.place();
        let mut state = self.state();
        let again = noted.is_none_or(|noted| noted.doubts != state.doubts);
        if state.over {
            drop(state);
            return seat.lose(ConnectionLost::TenureEnded);
        }
        let before = state.entries.remove(&place);
        if before.as_ref().is_some_and(|before| before.known > Some(epoch)) {
            // Two attaches of one connection answered out of order; the later one is the true one.
            state.entries.extend(before.map(|before| (place, before)));
            drop(state);
            return seat.lose(ConnectionLost::Overtaken);
        }
        let unheard = before.as_ref().and_then(|before| before.unheard).max(unheard);
        let entry = Entry {
            seat: Some(Arc::clone(seat)),
            under: tenure.clone(),
            known: Some(epoch).filter(|_| unheard.is_none()),
            unheard,
            leaving: None,
        };
        state.leaving.remove(&place);
        if again || unheard.is_some() {
            state.behind.insert(place.clone());
        } else {
            state.behind.remove(&place);
        }
        state.entries.insert(place, entry);
        drop(state);
        if let Some(before) = before {
            if let Some(seat) = before.seat {
                seat.lose(ConnectionLost::Overtaken);
            }
            if let Some(leaving) = before.leaving {
                leaving.tell(Ok(DetachOutcome::Stale { epoch }));
            }
        }
        self.work.notify_one();
    }

    /// An attach under this tenure was not heard, and may take effect until then.
    pub(super) fn unheard(&self, place: &Place, tenure: &TenureId, until: Mono) {
        let mut state = self.state();
        if state.over {
            return;
        }
        let entry = state.entries.entry(place.clone()).or_insert_with(|| Entry {
            seat: None,
            under: tenure.clone(),
            known: None,
            unheard: None,
            leaving: Some(Leaving::default()),
        });
        entry.under = tenure.clone();
        entry.known = None;
        entry.unheard = entry.unheard.max(Some(until));
        if entry.leaving.is_some() {
            state.leaving.insert(place.clone());
        } else {
            // Somebody has it: its epoch is to be learned.
            state.behind.insert(place.clone());
        }
        drop(state);
        self.work.notify_one();
    }

    /// Takes a connection back from its handle, and detaches it in the background.
    pub(super) fn leave(&self, seat: &Arc<Seat>, answer: Option<Answer>) {
        let place = seat.place();
        let mut state = self.state();
        let entry = state.entries.get_mut(&place);
        let ours = entry.filter(|entry| entry.seat.as_ref().is_some_and(|held| Arc::ptr_eq(held, seat)));
        let Some(entry) = ours else { return };
        if entry.leaving.is_some() {
            return;
        }
        entry.leaving = Some(Leaving {
            answer,
            ..Leaving::default()
        });
        state.behind.remove(&place);
        state.leaving.insert(place);
        drop(state);
        seat.lose(ConnectionLost::Detached);
        self.work.notify_one();
    }

    /// It was attached again; its seat is told. Answers whether its session is another than before.
    pub(super) fn attached(&self, seat: &Arc<Seat>, session: &Session, noted: Option<Noted>) -> bool {
        let place = seat.place();
        let mut state = self.state();
        let again = noted.is_none_or(|noted| noted.doubts != state.doubts);
        let Some(entry) = state.entries.get_mut(&place) else {
            return false;
        };
        // Also when another handle has it by now: at the store there is one connection of that name.
        entry.known = entry.known.max(Some(session.epoch));
        entry.unheard = None;
        let told = entry.seat.clone();
        if !again {
            state.behind.remove(&place);
        }
        drop(state);
        told.is_some_and(|seat| seat.attached(session))
    }

    /// It could not be attached again.
    pub(super) fn lost(&self, seat: &Arc<Seat>, why: ConnectionLost) {
        let place = seat.place();
        let mut state = self.state();
        let held = state.entries.get(&place).and_then(|entry| entry.seat.as_ref());
        let ours = held.is_some_and(|held| Arc::ptr_eq(held, seat));
        let leaving = ours.then(|| state.remove(&place)).flatten();
        drop(state);
        if let Some(leaving) = leaving {
            leaving.tell(Ok(DetachOutcome::NotAttached));
        }
        seat.lose(why);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes an entry out. Answers who waits for its detach.
    pub(super) fn remove(&mut self, place: &Place) -> Option<Leaving> {
        self.leaving.remove(place);
        self.behind.remove(place);
        self.entries.remove(place).and_then(|entry| entry.leaving)
    }
}
