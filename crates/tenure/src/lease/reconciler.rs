//! The background loop for the leases of a membership: sends pending releases and re-reads leases that are in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{HeldLeases, Place, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{MAX_PAGE, PageRequest};
use tokio::sync::Notify;

use super::give_up;
use super::table::{Grant, LeaseEntry, LeaseTable, PendingRelease};
use crate::loops::{OwnedLoop, run_owned};
use crate::membership::Shared;

/// The most reads before the result is accepted although our own calls keep changing the holdings.
const READS: u32 = 4;

/// Runs until the membership is over.
pub(crate) async fn reconcile_leases(shared: Arc<Shared>) {
    run_owned(shared.owner(), &mut LeaseReconciler(&shared)).await;
}

struct LeaseReconciler<'a>(&'a Shared);

impl OwnedLoop for LeaseReconciler<'_> {
    fn wakeup(&self) -> &Notify {
        &self.0.leases.work
    }

    fn due_in(&self) -> Option<Duration> {
        self.0.leases.due_in(self.0.now())
    }

    async fn turn(&mut self) -> Result<()> {
        let shared = self.0;
        let _reading = ReadGuard(&shared.leases);
        let given_up = loop {
            match give_up::round(shared).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Re-read even if a release failed: held leases must not wait for it.
        if shared.leases.read_is_due(shared.now()) {
            read_back(shared).await?;
        }
        given_up
    }

    fn failed(&self, error: &str) {
        let (group, tenure) = (&self.0.group, self.0.tenure());
        tracing::warn!(%group, %tenure, error, "releasing or re-reading leases failed; retrying");
    }
}

/// Repeats a read that was not completed when its turn ended.
struct ReadGuard<'a>(&'a LeaseTable);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if std::mem::take(&mut state.reading) {
            state.look = true;
        }
    }
}

/// The state of the table when a read started.
pub(super) struct ReadSnapshot {
    epoch: u64,
    doubts: u64,
    grants: Vec<Arc<Grant>>,
}

/// Reads our leases from the store and updates the table. A failed read is repeated.
async fn read_back(shared: &Shared) -> Result<()> {
    let tenure = shared.acting_tenure()?;
    for again in 1..=READS {
        let reading = shared.leases.start_reading(shared.now());
        match read_all(shared, &tenure).await? {
            Some((held, revision, stable)) if stable || again == READS => {
                if shared.leases.settle(&tenure, reading, held, revision) {
                    // A lease of a living tenure that is missing without a release shows that the store lost its latest
                    // writes; a change by others may hide it. Repeating a claim that exists changes nothing.
                    shared.doubt_claims();
                }
                return Ok(());
            }
            _ => {}
        }
    }
    let fell = "the lease revision at the store kept falling while it was read";
    Err(Error::unavailable(fell, Outcome::Unchanged))
}

/// Reads all pages. Returns the leases, the revision of the first page, and whether it was still the same on the last.
/// `None` if the revision fell in between.
async fn read_all(shared: &Shared, tenure: &TenureId) -> Result<Option<(BTreeMap<LeaseName, Token>, Revision, bool)>> {
    let (mut held, mut first, mut last) = (BTreeMap::new(), None, Revision::NONE);
    let mut page = PageRequest {
        after: None,
        limit: MAX_PAGE,
    };
    loop {
        let HeldLeases { page: leases, revision } = read_page(shared, tenure, &page).await?;
        if revision < last {
            return Ok(None);
        }
        last = revision;
        let first = *first.get_or_insert(revision);
        held.extend(leases.items.into_iter().map(|lease| (lease.lease, lease.token)));
        match leases.next {
            Some(next) => page.after = Some(next),
            None => return Ok(Some((held, first, first == last))),
        }
    }
}

async fn read_page(shared: &Shared, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
    let read = shared.context.store.held_leases(&shared.group, tenure, page);
    shared.context.read(read).await
}

impl LeaseTable {
    /// The time until there is work, if any.
    fn due_in(&self, now: Mono) -> Option<Duration> {
        let state = self.state();
        if state.entries.values().any(|entry| entry.giving_up.is_some()) {
            return Some(Duration::ZERO);
        }
        match state.look {
            true => Some(Duration::ZERO),
            false => state.read_at.map(|at| at.since(now)),
        }
    }

    /// Whether to read now. Without an acquire under this tenure there is nothing to read.
    fn read_is_due(&self, now: Mono) -> bool {
        let mut state = self.state();
        let is_due = state.look || state.read_at.is_some_and(|at| at <= now);
        if is_due && !state.asked {
            state.look = false;
            state.read_at = state.read_at.filter(|at| *at > now);
            state.doubted = false;
            state.accept_next = true;
        }
        is_due && state.asked
    }

    pub(super) fn start_reading(&self, now: Mono) -> ReadSnapshot {
        let mut state = self.state();
        state.look = false;
        state.read_at = state.read_at.filter(|at| *at > now);
        state.reading = true;
        ReadSnapshot {
            epoch: state.epoch,
            doubts: state.doubts,
            grants: state.entries.values().map(|entry| Arc::clone(&entry.grant)).collect(),
        }
    }

    /// Updates the table with the leases at the store: missing ones are lost, unknown ones are released. Returns
    /// whether claims may be lost as well.
    pub(super) fn settle(
        &self,
        tenure: &TenureId,
        reading: ReadSnapshot,
        held: BTreeMap<LeaseName, Token>,
        revision: Revision,
    ) -> bool {
        let mut lost = Vec::new();
        let mut state = self.state();
        if state.epoch != reading.epoch {
            return false;
        }
        for grant in reading.grants {
            let there = held.get(&grant.lease) == Some(&grant.token);
            // A release that is pending is answered by the store: what an operator released is taken until then.
            let is_kept = |entry: &LeaseEntry| Arc::ptr_eq(&entry.grant, &grant) && entry.giving_up.is_none();
            if !there && state.entries.get(&grant.lease).is_some_and(is_kept) {
                state.entries.remove(&grant.lease);
                lost.push(grant);
            }
        }
        let mut strange = 0;
        for (lease, token) in held {
            if self.others_act || state.asking.contains(&lease) || state.entries.contains_key(&lease) {
                continue;
            }
            strange += 1;
            // It is released by its token; the place and the generation do not matter.
            let grant = Grant::new(lease.clone(), token, (Place::FIRST, token), tenure.clone());
            grant.lost.cancel();
            let giving_up = Some(PendingRelease::default());
            state.entries.insert(lease, LeaseEntry { grant, giving_up });
        }
        state.known = state.known.max(revision);
        state.verified = revision;
        state.explained_to(revision);
        state.reading = false;
        let hidden = std::mem::take(&mut state.hidden);
        let certain_again = state.doubted && state.doubts == reading.doubts && !state.look;
        if certain_again {
            state.doubted = false;
        }
        drop(state);
        if certain_again {
            tracing::info!(group = %self.group(), %tenure, "leases confirmed by a re-read");
        }
        if !lost.is_empty() || strange > 0 {
            let (group, lost) = (self.group(), lost.len());
            tracing::warn!(%group, %tenure, lost, unknown = strange, "leases at the store differ from the local state");
        }
        let may_lack_claims = hidden || !lost.is_empty();
        for grant in lost {
            self.lose(&grant, "gone");
        }
        self.changed();
        self.work.notify_one();
        may_lack_claims
    }
}
