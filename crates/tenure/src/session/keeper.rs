//! The loop behind the connections of a membership: detaches what is to be detached, and attaches again what the present
//! tenure may not have.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::TenureId;
use tenure_core::membership::EndReason;
use tenure_core::session::{Attach, AttachOutcome, Detach, DetachOutcome, Epoch};
use tenure_core::sweep::BATCH;
use tokio::sync::Notify;

use super::book::{Book, ConnectionLost, Leaving, Place, Seat, State};
use super::{PART, short_answer};
use crate::error_copy::copy_of;
use crate::loops::{Keeper, keep};
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Runs until the membership is over.
pub(crate) async fn keep_connections(shared: Arc<Shared>) {
    keep(shared.owner(), &mut Connecting(&shared)).await;
    let reason = match shared.acting_tenure().map_err(|error| error.kind()) {
        Err(ErrorKind::Ended(reason)) => reason,
        _ => EndReason::Left,
    };
    shared.connections.end(&shared.tenure(), reason);
}

struct Connecting<'a>(&'a Shared);

impl Keeper for Connecting<'_> {
    fn news(&self) -> &Notify {
        &self.0.connections.work
    }

    fn due_in(&self) -> Option<Duration> {
        // Between an end and the next join there is no tenure to act under.
        self.0.acting_tenure().ok()?;
        self.0.connections.due_in(self.0.now())
    }

    async fn turn(&mut self) -> Result<()> {
        let shared = self.0;
        let tenure = shared.acting_tenure()?;
        let detached = loop {
            match detach_round(shared, &tenure).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Also when detaching fails: what is connected must not wait for it.
        let (mut again, mut anew) = (0, 0);
        while let Some((attached, renewed)) = attach_round(shared, &tenure).await? {
            again += attached;
            anew += renewed;
        }
        if again > 0 {
            tracing::info!(group = %shared.group, %tenure, again, anew, "attached again");
        }
        detached
    }

    fn failed(&self, error: &str) {
        let (group, tenure) = (&self.0.group, self.0.tenure());
        tracing::warn!(%group, %tenure, error, "attaching again or detaching failed; trying again");
    }
}

/// Sends one round of detaches. Answers whether there may be more.
async fn detach_round(shared: &Shared, tenure: &TenureId) -> Result<bool> {
    let book = &shared.connections;
    let detaches = book.to_detach(tenure, shared.now());
    if detaches.is_empty() {
        return Ok(false);
    }
    let store = &shared.context.store;
    let call = store.detach(&shared.group, tenure, &detaches, shared.call(PATIENCE));
    match shared.context.act(call).await {
        Ok(outcomes) if outcomes.len() == detaches.len() => {
            for (detach, outcome) in detaches.iter().zip(outcomes) {
                book.detached(detach, outcome);
            }
            book.settled.notify_waiters();
            Ok(true)
        }
        Ok(_) => Err(short_answer()),
        Err(error) => {
            shared.heed(&error);
            book.not_detached(&detaches, &error);
            Err(error)
        }
    }
}

/// Attaches one round of connections again: first without changing anything about their sessions, then those whose session
/// is gone. Answers how many, and of how many the session is another than before; `None` when there was nothing to do.
async fn attach_round(shared: &Shared, tenure: &TenureId) -> Result<Option<(u64, u64)>> {
    let seats = shared.connections.to_attach(tenure, shared.now());
    if seats.is_empty() {
        return Ok(None);
    }
    let mut sum = (0, 0);
    let gone = attach(shared, tenure, seats, false, &mut sum).await?;
    attach(shared, tenure, gone, true, &mut sum).await?;
    Ok(Some(sum))
}

/// Asks for connections again. Answers those whose session is gone and may be made anew.
async fn attach(
    shared: &Shared,
    tenure: &TenureId,
    seats: Vec<Arc<Seat>>,
    anew: bool,
    sum: &mut (u64, u64),
) -> Result<Vec<Arc<Seat>>> {
    if seats.is_empty() {
        return Ok(Vec::new());
    }
    let book = &shared.connections;
    let wanted: Vec<Attach> = seats.iter().map(|seat| seat.again(anew)).collect();
    let (act, until) = (shared.act(wanted.len(), PATIENCE), shared.now() + PATIENCE);
    let noted = book.note();
    book.attaching(&seats, tenure, until);
    let call = shared
        .context
        .store
        .attach(&shared.group, tenure, &wanted, shared.call(PATIENCE));
    let attached = match shared.context.act(call).await {
        Ok(attached) if attached.outcomes.len() == wanted.len() => attached,
        Ok(_) => return Err(short_answer()),
        Err(error) => {
            shared.heed(&error);
            act.failed(&error, false);
            if error.outcome() == Outcome::Unchanged && wanted.len() <= BATCH as usize {
                book.unchanged(&seats, until);
            }
            return Err(error);
        }
    };
    // What was lost since may be this.
    let doubted = shared.heed_answer(act.answered(attached.before, attached.revision));
    let noted = Some(noted).filter(|_| !doubted);
    let mut gone = Vec::new();
    for (seat, outcome) in seats.into_iter().zip(attached.outcomes) {
        let lost = match outcome {
            AttachOutcome::Attached { session, .. } => {
                sum.0 += 1;
                sum.1 += u64::from(book.attached(&seat, &session, noted));
                continue;
            }
            AttachOutcome::Gone if !seat.resume_only => {
                gone.push(seat);
                continue;
            }
            AttachOutcome::Gone => ConnectionLost::Gone,
            AttachOutcome::AliasTaken { by } => ConnectionLost::AliasTaken { by },
            AttachOutcome::Full { of } => ConnectionLost::Full { of },
        };
        let (group, session, connection) = (&shared.group, &seat.session, &seat.connection);
        tracing::warn!(%group, %session, %connection, ?lost, "a connection could not be attached again");
        book.lost(&seat, lost);
    }
    Ok(gone)
}

impl Book {
    /// How long until there is something to do.
    fn due_in(&self, now: Mono) -> Option<Duration> {
        let state = self.state();
        let work = state.leaving.iter().chain(&state.behind);
        // The first that may be done now ends the search.
        let mut first: Option<Duration> = None;
        for place in work.filter(|place| !state.asking.contains_key(*place)) {
            let Some(entry) = state.entries.get(place) else {
                continue;
            };
            let wait = entry.unheard.map_or(Duration::ZERO, |until| until.since(now));
            first = Some(first.map_or(wait, |first| first.min(wait)));
            if wait.is_zero() {
                break;
            }
        }
        first
    }

    /// The next detaches. What was held under an earlier tenure only is the janitor's.
    fn to_detach(&self, tenure: &TenureId, now: Mono) -> Vec<Detach> {
        let mut state = self.state();
        let mut detaches = Vec::new();
        let mut over = Vec::new();
        for place in &state.leaving.clone() {
            if detaches.len() >= PART {
                break;
            }
            let asking = state.asking.contains_key(place);
            let Some(entry) = state.entries.get_mut(place) else {
                continue;
            };
            if entry.under != *tenure {
                over.push(place.clone());
                continue;
            }
            let may_come = entry.unheard.is_some_and(|until| until > now);
            if entry.known.is_none() && (asking || may_come) {
                continue;
            }
            if let (None, Some(leaving)) = (entry.known, &mut entry.leaving) {
                leaving.blind_until = Some(now + PATIENCE);
            }
            detaches.push(Detach {
                session: place.0.clone(),
                connection: place.1.clone(),
                epoch: entry.known,
            });
        }
        let over: Vec<(TenureId, Leaving)> = over
            .iter()
            .filter_map(|place| {
                let under = state.entries.get(place)?.under.clone();
                Some((under, state.remove(place)?))
            })
            .collect();
        drop(state);
        for (under, leaving) in over {
            leaving.tell(Err(Error::ended(under, EndReason::Unknown)));
        }
        detaches
    }

    /// The store has answered for this one.
    fn detached(&self, detach: &Detach, outcome: DetachOutcome) {
        let mut state = self.state();
        let Some(leaving) = state.take_leaving(detach) else {
            return;
        };
        drop(state);
        let outcome = match outcome {
            // An attempt before this one did it.
            DetachOutcome::NotAttached if leaving.tried => DetachOutcome::Detached { reap_in: None },
            outcome => outcome,
        };
        leaving.tell(Ok(outcome));
    }

    /// An attempt at these failed.
    fn not_detached(&self, detaches: &[Detach], error: &Error) {
        let useless = matches!(
            error.kind(),
            ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Denied
        );
        let unchanged = error.outcome() == Outcome::Unchanged && detaches.len() <= BATCH as usize;
        for detach in detaches {
            let mut state = self.state();
            if useless {
                // Trying again is useless; the tenure's end will detach them.
                let leaving = state.take_leaving(detach);
                drop(state);
                if let Some(leaving) = leaving {
                    leaving.tell(Err(copy_of(error)));
                }
                continue;
            }
            if let Some(leaving) = state.leaving_of(detach) {
                leaving.tried |= !unchanged;
                leaving.blind_until = leaving.blind_until.filter(|_| !unchanged);
            }
        }
    }

    /// The next connections to attach again under this tenure.
    fn to_attach(&self, tenure: &TenureId, now: Mono) -> Vec<Arc<Seat>> {
        let mut state = self.state();
        let mut seats = Vec::new();
        for place in &state.behind.clone() {
            if seats.len() >= PART {
                break;
            }
            let asking = state.asking.contains_key(place);
            match state.entries.get(place) {
                Some(entry) if entry.leaving.is_none() => {
                    // A call under the tenure before cannot take effect under this one.
                    let may_come = entry.under == *tenure && entry.unheard.is_some_and(|until| until > now);
                    if !asking && !may_come {
                        seats.extend(entry.seat.clone());
                    }
                }
                _ => {
                    state.behind.remove(place);
                }
            }
        }
        seats
    }

    /// These are about to be asked for again.
    fn attaching(&self, seats: &[Arc<Seat>], tenure: &TenureId, until: Mono) {
        let mut state = self.state();
        for seat in seats {
            if let Some(entry) = state.entries.get_mut(&seat.place()) {
                entry.under = tenure.clone();
                entry.known = None;
                entry.unheard = Some(until);
            }
        }
    }

    /// Asking for these again certainly did nothing.
    fn unchanged(&self, seats: &[Arc<Seat>], until: Mono) {
        let mut state = self.state();
        for seat in seats {
            if let Some(entry) = state.entries.get_mut(&seat.place()) {
                entry.unheard = entry.unheard.filter(|unheard| *unheard != until);
            }
        }
    }

    /// The epoch of what is attached under that name here.
    pub(super) fn epoch_of(&self, place: &Place) -> Option<Epoch> {
        self.state().entries.get(place).and_then(|entry| entry.known)
    }
}

impl State {
    /// What is on its way out by exactly this detach.
    fn leaving_of(&mut self, detach: &Detach) -> Option<&mut Leaving> {
        let place = (detach.session.clone(), detach.connection.clone());
        let entry = self.entries.get_mut(&place)?;
        entry.leaving.as_mut().filter(|_| entry.known == detach.epoch)
    }

    fn take_leaving(&mut self, detach: &Detach) -> Option<Leaving> {
        self.leaving_of(detach)?;
        self.remove(&(detach.session.clone(), detach.connection.clone()))
    }
}
