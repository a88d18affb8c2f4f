//! What a pass over a registry has removed so far, for a pass that ends before it can report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;

use super::Notice;
use crate::daemon::Early;

/// How often to look whether a page is done.
const LOOK: Duration = Duration::from_millis(5);

/// Counts what a pass tells its listener. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<Removed>>);

/// What was removed.
#[derive(Debug, Clone, Default)]
pub struct Removed {
    /// Entries removed, by owner.
    pub evicted: BTreeMap<Vec<u8>, u64>,
    /// Entries that may have been removed without being counted.
    pub unsure: u64,
    /// The size of the page that is being removed.
    page: u64,
}

impl Removed {
    /// All entries removed.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.values().sum()
    }

    /// Nothing but entries that nobody could count.
    pub(super) fn unsure(entries: u64) -> Self {
        Self {
            unsure: entries,
            ..Self::default()
        }
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.evicted.is_empty() && self.unsure == 0
    }
}

impl Tally {
    /// A pass begins.
    pub fn begin(&self) {
        *self.counts() = Removed::default();
    }

    /// Notes what a pass tells.
    pub fn note(&self, notice: &Notice<'_>) {
        let mut counts = self.counts();
        counts.page = 0;
        match notice {
            Notice::Evicting(candidates) => counts.page = candidates.len() as u64,
            Notice::Evicted { owner, entries } => *counts.evicted.entry(owner.to_vec()).or_default() += entries,
            Notice::Unsure { entries } => counts.unsure += entries,
            _ => {}
        }
    }

    /// Waits until no page is being removed, but no longer than `most`: then the pass may be left.
    pub async fn at_rest(&self, clock: &Arc<dyn Clock>, most: Duration) {
        let give_up = clock.mono() + most;
        while self.counts().page > 0 && clock.mono() < give_up {
            clock.sleep(LOOK).await;
        }
    }

    /// What a pass has removed that ended early. `pending`: how many entries the janitor could not count at its end.
    #[must_use]
    pub fn removed(&self, why: Early, pending: u64) -> Removed {
        let mut removed = self.counts().clone();
        removed.unsure += match why {
            Early::Failed => pending,
            // A page that was left in the midst of it is the one that the janitor could not count, if there is one.
            Early::Interrupted => removed.page.max(pending),
        };
        removed
    }

    fn counts(&self) -> MutexGuard<'_, Removed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Candidate;

    #[test]
    fn removals_add_up_and_a_page_in_the_air_is_unsure() {
        let tally = Tally::default();
        let page: Vec<Candidate> = (0..3)
            .map(|n| Candidate {
                field: vec![n],
                value: vec![n],
                owner: b"a".to_vec(),
            })
            .collect();
        let evicted = |owner, entries| Notice::Evicted { owner, entries };
        for notice in [
            Notice::Evicting(&page),
            evicted(b"a", 2),
            evicted(b"b", 1),
            Notice::Evicting(&page),
            Notice::Scanned { entries: 7 },
            Notice::Evicting(&page),
            evicted(b"a", 3),
        ] {
            tally.note(&notice);
        }
        let removed = tally.removed(Early::Interrupted, 0);
        assert_eq!((removed.evicted_total(), removed.unsure), (6, 0));
        assert_eq!(removed.evicted[&b"a".to_vec()], 5);
        tally.note(&Notice::Evicting(&page));
        assert_eq!(tally.removed(Early::Interrupted, 0).unsure, 3);
        assert_eq!(tally.removed(Early::Interrupted, 3).unsure, 3, "the same page");
        assert_eq!(tally.removed(Early::Failed, 0).unsure, 0, "it was never sent");
        tally.begin();
        assert!(tally.removed(Early::Interrupted, 0).is_nothing());
    }
}
