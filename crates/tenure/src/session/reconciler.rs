//! The loop that reconciles the connections of a membership with the store: it sends pending detaches, and attaches
//! again what the store may not have under the present tenure.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::TenureId;
use tenure_core::membership::EndReason;
use tenure_core::session::{Attach, AttachOutcome, Detach, DetachOutcome, Epoch};
use tenure_core::sweep::BATCH;
use tokio::sync::Notify;

use super::handles::{ConnectionKey, ConnectionLost, HandleTable, LiveHandle, LiveHandles, PendingDetach};
use super::{PART, short_answer};
use crate::error_copy::copy_of;
use crate::loops::{OwnedLoop, run_owned};
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Runs until the membership ends.
pub(crate) async fn reconcile_connections(shared: Arc<Shared>) {
    run_owned(shared.owner(), &mut ConnectionReconciler(&shared)).await;
    let reason = match shared.acting_tenure().map_err(|error| error.kind()) {
        Err(ErrorKind::Ended(reason)) => reason,
        _ => EndReason::Left,
    };
    shared.connections.end(&shared.tenure(), reason);
}

struct ConnectionReconciler<'a>(&'a Shared);

impl OwnedLoop for ConnectionReconciler<'_> {
    fn wakeup(&self) -> &Notify {
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
        // Runs also when detaching fails: live connections must not wait for it.
        let (mut reattached, mut recreated) = (0, 0);
        while let Some((attached, renewed)) = attach_round(shared, &tenure).await? {
            reattached += attached;
            recreated += renewed;
        }
        if reattached > 0 {
            tracing::info!(group = %shared.group, %tenure, reattached, recreated, "connections re-attached");
        }
        detached
    }

    fn failed(&self, error: &str) {
        let (group, tenure) = (&self.0.group, self.0.tenure());
        tracing::warn!(%group, %tenure, error, "re-attaching or detaching connections failed; retrying");
    }
}

/// Sends one round of detaches. Returns whether there may be more.
async fn detach_round(shared: &Shared, tenure: &TenureId) -> Result<bool> {
    let live = &shared.connections;
    let detaches = live.to_detach(tenure, shared.now());
    if detaches.is_empty() {
        return Ok(false);
    }
    let store = &shared.context.store;
    let call = store.detach(&shared.group, tenure, &detaches, shared.call(PATIENCE));
    match shared.context.act(call).await {
        Ok(outcomes) if outcomes.len() == detaches.len() => {
            for (detach, outcome) in detaches.iter().zip(outcomes) {
                live.detached(detach, outcome);
            }
            live.detach_finished.notify_waiters();
            Ok(true)
        }
        Ok(_) => Err(short_answer()),
        Err(error) => {
            shared.heed(&error);
            live.not_detached(&detaches, &error);
            Err(error)
        }
    }
}

/// Attaches one round of connections again: first resuming their sessions unchanged, then recreating the sessions that
/// are gone. Returns how many were attached and how many of their sessions are new; `None` when there was nothing to
/// do.
async fn attach_round(shared: &Shared, tenure: &TenureId) -> Result<Option<(u64, u64)>> {
    let handles = shared.connections.to_attach(tenure, shared.now());
    if handles.is_empty() {
        return Ok(None);
    }
    let mut sum = (0, 0);
    let gone = attach(shared, tenure, handles, false, &mut sum).await?;
    attach(shared, tenure, gone, true, &mut sum).await?;
    Ok(Some(sum))
}

/// Sends one re-attach. Returns the connections whose session is gone and may be recreated.
async fn attach(
    shared: &Shared,
    tenure: &TenureId,
    handles: Vec<Arc<LiveHandle>>,
    create: bool,
    sum: &mut (u64, u64),
) -> Result<Vec<Arc<LiveHandle>>> {
    if handles.is_empty() {
        return Ok(Vec::new());
    }
    let live = &shared.connections;
    let wanted: Vec<Attach> = handles.iter().map(|handle| handle.reattach_request(create)).collect();
    let (act, until) = (shared.act(wanted.len(), PATIENCE), shared.now() + PATIENCE);
    let doubts_before = live.doubt_count();
    live.begin_reattach(&handles, tenure, until);
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
                live.reattach_unchanged(&handles, until);
            }
            return Err(error);
        }
    };
    // The store may have lost these connections since.
    let doubted = shared.heed_answer(act.answered(attached.before, attached.revision));
    let doubts_before = Some(doubts_before).filter(|_| !doubted);
    let mut gone = Vec::new();
    for (handle, outcome) in handles.into_iter().zip(attached.outcomes) {
        let lost = match outcome {
            AttachOutcome::Attached { session, .. } => {
                sum.0 += 1;
                sum.1 += u64::from(live.attached(&handle, &session, doubts_before));
                continue;
            }
            AttachOutcome::Gone if !handle.resume_only => {
                gone.push(handle);
                continue;
            }
            AttachOutcome::Gone => ConnectionLost::Gone,
            AttachOutcome::AliasTaken { by } => ConnectionLost::AliasTaken { by },
            AttachOutcome::Full { of } => ConnectionLost::Full { of },
        };
        let (group, session, connection) = (&shared.group, &handle.session, &handle.connection);
        tracing::warn!(%group, %session, %connection, ?lost, "a connection could not be re-attached and is lost");
        live.lost(&handle, lost);
    }
    Ok(gone)
}

impl LiveHandles {
    /// The time until there is something to do.
    fn due_in(&self, now: Mono) -> Option<Duration> {
        let state = self.state();
        let work = state.detaching.iter().chain(&state.to_reattach);
        // An entry that is due now ends the search.
        let mut first: Option<Duration> = None;
        for key in work.filter(|key| !state.attaching.contains_key(*key)) {
            let Some(entry) = state.entries.get(key) else {
                continue;
            };
            let wait = entry.unanswered_until.map_or(Duration::ZERO, |until| until.since(now));
            first = Some(first.map_or(wait, |first| first.min(wait)));
            if wait.is_zero() {
                break;
            }
        }
        first
    }

    /// The next detaches. A connection held only under an earlier tenure is left to the janitor.
    fn to_detach(&self, tenure: &TenureId, now: Mono) -> Vec<Detach> {
        let mut state = self.state();
        let mut detaches = Vec::new();
        let mut over = Vec::new();
        for key in &state.detaching.clone() {
            if detaches.len() >= PART {
                break;
            }
            let attaching = state.attaching.contains_key(key);
            let Some(entry) = state.entries.get_mut(key) else {
                continue;
            };
            if entry.under != *tenure {
                over.push(key.clone());
                continue;
            }
            let may_come = entry.unanswered_until.is_some_and(|until| until > now);
            if entry.known_epoch.is_none() && (attaching || may_come) {
                continue;
            }
            if let (None, Some(pending)) = (entry.known_epoch, &mut entry.pending_detach) {
                pending.unconditional_until = Some(now + PATIENCE);
            }
            detaches.push(Detach {
                session: key.0.clone(),
                connection: key.1.clone(),
                epoch: entry.known_epoch,
            });
        }
        let over: Vec<(TenureId, PendingDetach)> = over
            .iter()
            .filter_map(|key| {
                let under = state.entries.get(key)?.under.clone();
                Some((under, state.remove(key)?))
            })
            .collect();
        drop(state);
        for (under, pending) in over {
            pending.answer(Err(Error::ended(under, EndReason::Unknown)));
        }
        detaches
    }

    /// Records the store's answer to a detach.
    fn detached(&self, detach: &Detach, outcome: DetachOutcome) {
        let mut state = self.state();
        let Some(pending) = state.take_pending_detach(detach) else {
            return;
        };
        drop(state);
        let outcome = match outcome {
            // An earlier attempt detached it.
            DetachOutcome::NotAttached if pending.tried => DetachOutcome::Detached { reap_in: None },
            outcome => outcome,
        };
        pending.answer(Ok(outcome));
    }

    /// Records a failed attempt at these detaches.
    fn not_detached(&self, detaches: &[Detach], error: &Error) {
        let useless = matches!(
            error.kind(),
            ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Denied
        );
        let unchanged = error.outcome() == Outcome::Unchanged && detaches.len() <= BATCH as usize;
        for detach in detaches {
            let mut state = self.state();
            if useless {
                // Retrying cannot help; the end of the tenure detaches them.
                let pending = state.take_pending_detach(detach);
                drop(state);
                if let Some(pending) = pending {
                    pending.answer(Err(copy_of(error)));
                }
                continue;
            }
            if let Some(pending) = state.pending_detach_of(detach) {
                pending.tried |= !unchanged;
                pending.unconditional_until = pending.unconditional_until.filter(|_| !unchanged);
            }
        }
    }

    /// The next connections to attach again under this tenure.
    fn to_attach(&self, tenure: &TenureId, now: Mono) -> Vec<Arc<LiveHandle>> {
        let mut state = self.state();
        let mut handles = Vec::new();
        for key in &state.to_reattach.clone() {
            if handles.len() >= PART {
                break;
            }
            let attaching = state.attaching.contains_key(key);
            match state.entries.get(key) {
                Some(entry) if entry.pending_detach.is_none() => {
                    // A call under an earlier tenure cannot take effect under this one.
                    let may_come = entry.under == *tenure && entry.unanswered_until.is_some_and(|until| until > now);
                    if !attaching && !may_come {
                        handles.extend(entry.handle.clone());
                    }
                }
                _ => {
                    state.to_reattach.remove(key);
                }
            }
        }
        handles
    }

    /// Records that these are being attached again.
    fn begin_reattach(&self, handles: &[Arc<LiveHandle>], tenure: &TenureId, until: Mono) {
        let mut state = self.state();
        for handle in handles {
            if let Some(entry) = state.entries.get_mut(&handle.key()) {
                entry.under = tenure.clone();
                entry.known_epoch = None;
                entry.unanswered_until = Some(until);
            }
        }
    }

    /// Records that the re-attach of these changed nothing.
    fn reattach_unchanged(&self, handles: &[Arc<LiveHandle>], until: Mono) {
        let mut state = self.state();
        for handle in handles {
            if let Some(entry) = state.entries.get_mut(&handle.key()) {
                entry.unanswered_until = entry
                    .unanswered_until
                    .filter(|unanswered_until| *unanswered_until != until);
            }
        }
    }

    /// The epoch of the connection attached under that name here.
    pub(super) fn epoch_of(&self, key: &ConnectionKey) -> Option<Epoch> {
        self.state().entries.get(key).and_then(|entry| entry.known_epoch)
    }
}

impl HandleTable {
    /// The pending detach that this call carried.
    fn pending_detach_of(&mut self, detach: &Detach) -> Option<&mut PendingDetach> {
        let key = (detach.session.clone(), detach.connection.clone());
        let entry = self.entries.get_mut(&key)?;
        entry
            .pending_detach
            .as_mut()
            .filter(|_| entry.known_epoch == detach.epoch)
    }

    fn take_pending_detach(&mut self, detach: &Detach) -> Option<PendingDetach> {
        self.pending_detach_of(detach)?;
        self.remove(&(detach.session.clone(), detach.connection.clone()))
    }
}
