//! The removals of a pass so far, for a pass that ends before its report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;

use super::Notice;
use crate::daemon::EarlyEnd;

/// The poll interval for the end of a page.
const LOOK: Duration = Duration::from_millis(5);

/// Counts the events of a pass. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<Removed>>);

/// The removals.
#[derive(Debug, Clone, Default)]
pub struct Removed {
    /// Entries removed, by owner.
    pub evicted: BTreeMap<Vec<u8>, u64>,
    /// Entries that may have been removed without being counted.
    pub unsure: u64,
    /// The size of the page in flight.
    page: u64,
}

impl Removed {
    /// The total of removed entries.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.values().sum()
    }

    /// Only entries with unknown outcome.
    pub(super) fn unsure(entries: u64) -> Self {
        Self {
            unsure: entries,
            ..Self::default()
        }
    }

    /// Whether nothing was removed.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.evicted.is_empty() && self.unsure == 0
    }
}

impl Tally {
    /// Resets the counts for a new pass.
    pub fn begin(&self) {
        *self.counts() = Removed::default();
    }

    /// Records an event of the pass.
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

    /// Waits until no page is in flight, at most for `most`. Then the pass may be dropped.
    pub async fn page_finished(&self, clock: &Arc<dyn Clock>, most: Duration) {
        let give_up = clock.mono() + most;
        while self.counts().page > 0 && clock.mono() < give_up {
            clock.sleep(LOOK).await;
        }
    }

    /// The removals of a pass that ended early. `pending`: the entries that the janitor could not count at its end.
    #[must_use]
    pub fn removed(&self, why: EarlyEnd, pending: u64) -> Removed {
        let mut removed = self.counts().clone();
        removed.unsure += match why {
            EarlyEnd::Failed => pending,
            // An interrupted page is the one that the janitor could not count, if any.
            EarlyEnd::Interrupted => removed.page.max(pending),
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
    fn removals_add_up_and_the_page_in_flight_is_unsure() {
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
            Notice::Scanned { entries: 7, bytes: 70 },
            Notice::Evicting(&page),
            evicted(b"a", 3),
        ] {
            tally.note(&notice);
        }
        let removed = tally.removed(EarlyEnd::Interrupted, 0);
        assert_eq!((removed.evicted_total(), removed.unsure), (6, 0));
        assert_eq!(removed.evicted[&b"a".to_vec()], 5);
        tally.note(&Notice::Evicting(&page));
        assert_eq!(tally.removed(EarlyEnd::Interrupted, 0).unsure, 3);
        assert_eq!(tally.removed(EarlyEnd::Interrupted, 3).unsure, 3, "the same page");
        assert_eq!(tally.removed(EarlyEnd::Failed, 0).unsure, 0, "it was never sent");
        tally.begin();
        assert!(tally.removed(EarlyEnd::Interrupted, 0).is_nothing());
    }
}
