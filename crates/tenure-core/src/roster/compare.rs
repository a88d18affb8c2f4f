//! Comparing a mirror with its ledger: what has to be put so that they agree.
//!
//! The mirror is read first and the ledger after it. A row commits in the ledger before anybody can mirror it, so the
//! ledger's row is at least as new as the mirror's, unless one of the two has lost data; then the ledger wins. What is put
//! over an exact version changes nothing that arrives in between.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::put::{Entry, Over, Put};
use crate::id::ProviderId;
use crate::ledger::{Provider, Version};

/// What the mirror had, to be compared with the rows of the ledger. About 100 bytes a provider.
#[derive(Debug)]
pub struct Comparison {
    /// Drawn from the ledger before anything was read.
    drawn: Version,
    mirrored: HashMap<ProviderId, Kept>,
    differences: u64,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    version: Version,
    /// Of the row; `None` for a removal.
    digest: Option<u64>,
}

impl Comparison {
    /// Nothing seen yet; `drawn` is from [`Ledger::next_version`](crate::ledger::Ledger::next_version).
    #[must_use]
    pub fn new(drawn: Version) -> Self {
        Self {
            drawn,
            mirrored: HashMap::new(),
            differences: 0,
        }
    }

    /// The mirror has this. Of what is told twice the newer counts.
    pub fn saw(&mut self, entry: &Entry) {
        let kept = Kept {
            version: entry.version(),
            digest: match entry {
                Entry::Row(row) => Some(digest(row)),
                Entry::Gone { .. } => None,
            },
        };
        let there = self.mirrored.entry(entry.provider().clone()).or_insert(kept);
        if kept.version >= there.version {
            *there = kept;
        }
    }

    /// The ledger has these, each of which is told once. Answers what has to be put.
    pub fn compare(&mut self, rows: Vec<Provider>) -> Vec<Put> {
        let puts: Vec<Put> = rows.into_iter().filter_map(|row| self.compare_one(row)).collect();
        self.differences += puts.len() as u64;
        puts
    }

    fn compare_one(&mut self, row: Provider) -> Option<Put> {
        let over = match self.mirrored.remove(&row.provider) {
            None => Over::Older,
            Some(kept) if kept.version < row.version => Over::Older,
            Some(kept) if kept.version == row.version && kept.digest == Some(digest(&row)) => return None,
            Some(kept) => Over::Exactly(kept.version),
        };
        let entry = Entry::Row(row);
        Some(Put { entry, over })
    }

    /// The ledger was read to its end: whether the mirror has anything beyond it.
    #[must_use]
    pub fn is_beyond(&self) -> bool {
        self.mirrored.values().any(|kept| kept.digest.is_some())
    }

    /// The ledger was read to its end: what the mirror has beyond it is to go. The removal is no older than what it
    /// removes, so that a slow writer cannot bring that back; and older than all that is written down from now on.
    #[must_use]
    pub fn rest(&mut self) -> Vec<Put> {
        let beyond = self.mirrored.drain().filter(|(_, kept)| kept.digest.is_some());
        let puts: Vec<Put> = beyond
            .map(|(provider, kept)| Put {
                entry: Entry::Gone {
                    provider,
                    version: self.drawn.max(kept.version),
                },
                over: Over::Exactly(kept.version),
            })
            .collect();
        self.differences += puts.len() as u64;
        puts
    }

    /// How many providers differed so far.
    #[must_use]
    pub fn differences(&self) -> u64 {
        self.differences
    }
}

/// All of a row but its heartbeat. Two rows that differ have the same one with a probability of 2^-64.
fn digest(row: &Provider) -> u64 {
    let mut hasher = DefaultHasher::new();
    let row = Provider {
        last_heartbeat_at: None,
        ..row.clone()
    };
    row.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, version: u64, capacity: u32) -> Provider {
        Provider {
            provider: ProviderId::new(name).unwrap(),
            display_name: None,
            active: true,
            online: None,
            capacity,
            occupancy: 0,
            last_online_at: None,
            last_offline_at: None,
            last_heartbeat_at: None,
            revoked_before: None,
            version: Version(version),
        }
    }

    fn gone(name: &str, version: u64) -> Entry {
        Entry::Gone {
            provider: ProviderId::new(name).unwrap(),
            version: Version(version),
        }
    }

    fn over(puts: &[Put]) -> Vec<(String, u64, Over)> {
        let mut all: Vec<_> = puts
            .iter()
            .map(|put| (put.entry.provider().to_string(), put.entry.version().0, put.over))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    #[test]
    fn only_what_differs_is_put() {
        let mut comparison = Comparison::new(Version(50));
        for entry in [
            Entry::Row(row("same", 5, 1)),
            Entry::Row(row("older", 5, 1)),
            Entry::Row(row("other", 5, 1)),
            Entry::Row(row("newer", 9, 1)),
            gone("back", 7),
            gone("removed", 7),
        ] {
            comparison.saw(&entry);
        }
        let heard = Provider {
            last_heartbeat_at: Some(crate::time::StoreTime::from_micros(9)),
            ..row("same", 5, 1)
        };
        let rows = vec![
            heard,
            row("older", 6, 1),
            row("other", 5, 2),
            row("newer", 8, 1),
            row("back", 8, 1),
            row("missing", 3, 1),
        ];
        let puts = comparison.compare(rows);
        let expected = [
            ("back", 8, Over::Older),
            ("missing", 3, Over::Older),
            ("newer", 8, Over::Exactly(Version(9))),
            ("older", 6, Over::Older),
            ("other", 5, Over::Exactly(Version(5))),
        ];
        assert_eq!(
            over(&puts),
            expected.map(|(name, version, over)| (name.to_owned(), version, over))
        );
        assert_eq!((comparison.rest(), comparison.differences()), (Vec::new(), 5));
    }

    #[test]
    fn what_the_ledger_lacks_goes_and_cannot_come_back_by_a_slow_writer() {
        let mut comparison = Comparison::new(Version(50));
        comparison.saw(&Entry::Row(row("old", 5, 1)));
        comparison.saw(&Entry::Row(row("old", 4, 1)));
        // The ledger lost data, or the provider was removed just now.
        comparison.saw(&Entry::Row(row("young", 60, 1)));
        assert!(comparison.compare(Vec::new()).is_empty());
        let expected = [
            ("old".to_owned(), 50, Over::Exactly(Version(5))),
            ("young".to_owned(), 60, Over::Exactly(Version(60))),
        ];
        assert_eq!(over(&comparison.rest()), expected);
        assert_eq!(comparison.differences(), 2);
    }
}
