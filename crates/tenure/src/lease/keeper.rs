//! The loop behind the leases of a membership: gives up what is to be given up, and reads back what is in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{HeldLeases, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{MAX_PAGE, PageRequest};
use tokio::sync::Notify;

use super::book::{Book, Entry, GivingUp, Grant};
use super::give_up;
use crate::loops::{Keeper, keep};
use crate::membership::Shared;

/// How often the holdings are read at most before they are taken as they are: our own acts change them meanwhile.
const READS: u32 = 4;

/// Runs until the membership is over.
pub(crate) async fn keep_leases(shared: Arc<Shared>) {
    keep(shared.owner(), &mut Holding(&shared)).await;
}

struct Holding<'a>(&'a Shared);

impl Keeper for Holding<'_> {
    fn news(&self) -> &Notify {
        &self.0.leases.work
    }

    fn due_in(&self) -> Option<Duration> {
        self.0.leases.due_in(self.0.now())
    }

    async fn turn(&mut self) -> Result<()> {
        let shared = self.0;
        let _reading = StopReading(&shared.leases);
        let given_up = loop {
            match give_up::round(shared).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Also when giving up fails: what is held must not wait for it.
        if shared.leases.read_is_due(shared.now()) {
            read_back(shared).await?;
        }
        given_up
    }

    fn failed(&self, error: &str) {
        let (group, tenure) = (&self.0.group, self.0.tenure());
        tracing::warn!(%group, %tenure, error, "giving up or reading back leases failed; trying again");
    }
}

/// A reading that was not settled when its turn ends, however it ends, is repeated.
struct StopReading<'a>(&'a Book);

impl Drop for StopReading<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if std::mem::take(&mut state.reading) {
            state.look = true;
        }
    }
}

/// What was in the book when a reading began.
struct Reading {
    epoch: u64,
    doubts: u64,
    grants: Vec<Arc<Grant>>,
}

/// Reads what the store has for our tenure, and settles the book by it. A failed reading is repeated.
async fn read_back(shared: &Shared) -> Result<()> {
    let tenure = shared.acting_tenure()?;
    for again in 1..=READS {
        let reading = shared.leases.start_reading(shared.now());
        match read_all(shared, &tenure).await? {
            Some((held, revision, stable)) if stable || again == READS => {
                if shared.leases.settle(&tenure, reading, held, revision) {
                    // A living tenure loses a lease that it did not give up when the store lost the end of its data: then
                    // claims may be gone as well. Claiming again what is owned changes nothing.
                    shared.doubt_claims();
                }
                return Ok(());
            }
            _ => {}
        }
    }
    let fell = "what the store says that we hold fell back again and again while it was read";
    Err(Error::unavailable(fell, Outcome::Unchanged))
}

/// All pages with the number at the first, and whether nothing changed up to the last; nothing when the store fell back
/// meanwhile.
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

impl Book {
    /// In how long there is something to do, if there is.
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

    /// Whether to read now. Without a lease ever asked for there is nothing to read.
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

    fn start_reading(&self, now: Mono) -> Reading {
        let mut state = self.state();
        state.look = false;
        state.read_at = state.read_at.filter(|at| *at > now);
        state.reading = true;
        Reading {
            epoch: state.epoch,
            doubts: state.doubts,
            grants: state.entries.values().map(|entry| Arc::clone(&entry.grant)).collect(),
        }
    }

    /// Settles the book by what the store has: what is not there is lost, what nobody here knows is given up. Answers
    /// whether anything was lost.
    fn settle(
        &self,
        tenure: &TenureId,
        reading: Reading,
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
            let entry = state.entries.get(&grant.lease);
            if !there && entry.is_some_and(|entry| Arc::ptr_eq(&entry.grant, &grant)) {
                let giving_up = state.entries.remove(&grant.lease).and_then(|entry| entry.giving_up);
                lost.push((grant, giving_up));
            }
        }
        let mut strange = 0;
        for (lease, token) in held {
            if self.others_act || state.asking.contains(&lease) || state.entries.contains_key(&lease) {
                continue;
            }
            strange += 1;
            let grant = Grant::new(lease.clone(), token, tenure.clone());
            grant.lost.cancel();
            let giving_up = Some(GivingUp::default());
            state.entries.insert(lease, Entry { grant, giving_up });
        }
        state.told = state.told.max(revision);
        state.verified = revision;
        state.reading = false;
        let certain_again = state.doubted && state.doubts == reading.doubts;
        if certain_again {
            state.doubted = false;
        }
        drop(state);
        if certain_again {
            tracing::info!(group = %self.group(), %tenure, "leases are certain again: read back");
        }
        if !lost.is_empty() || strange > 0 {
            let (group, lost) = (self.group(), lost.len());
            tracing::warn!(%group, %tenure, lost, unknown = strange, "leases are not as they were believed to be");
        }
        let any_lost = !lost.is_empty();
        for (grant, giving_up) in lost {
            self.lose(&grant, "gone");
            if let Some(giving_up) = giving_up {
                let outcome = give_up::gone(&giving_up);
                // It only fails when nobody waits any more.
                giving_up.answer.map(|answer| answer.send(Ok(outcome)));
            }
        }
        self.changed();
        self.work.notify_one();
        any_lost
    }
}
