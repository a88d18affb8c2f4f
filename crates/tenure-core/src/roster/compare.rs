//! Compares a mirror with its ledger and finds the entries to write.
//!
//! The mirror is read first, then the ledger. A row commits in the ledger before it can be mirrored, so the ledger's
//! row is at least as new as the mirror's, unless one of them has lost data; then the ledger wins. A write over an
//! exact version does not overwrite entries that arrive in between.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::put::{MirrorEntry, Overwrite, Put};
use crate::id::ProviderId;
use crate::ledger::{Provider, Version};

/// The content of a mirror, for comparison with the ledger. About 100 bytes per provider.
#[derive(Debug)]
pub struct Comparison {
    /// A version drawn from the ledger before anything was read.
    drawn: Version,
    mirrored: HashMap<ProviderId, Mirrored>,
    differences: u64,
}

#[derive(Debug, Clone, Copy)]
struct Mirrored {
    version: Version,
    /// The hash of the row; `None` for a removal.
    digest: Option<u64>,
}

impl Comparison {
    /// An empty comparison; `drawn` is from [`Ledger::next_version`](crate::ledger::Ledger::next_version).
    #[must_use]
    pub fn new(drawn: Version) -> Self {
        Self {
            drawn,
            mirrored: HashMap::new(),
            differences: 0,
        }
    }

    /// Records an entry of the mirror. Of two entries of a provider, the newer one counts.
    pub fn saw(&mut self, entry: &MirrorEntry) {
        let kept = Mirrored {
            version: entry.version(),
            digest: match entry {
                MirrorEntry::Row(row) => Some(digest(row)),
                MirrorEntry::Gone { .. } => None,
            },
        };
        let there = self.mirrored.entry(entry.provider().clone()).or_insert(kept);
        if kept.version >= there.version {
            *there = kept;
        }
    }

    /// Compares rows of the ledger, each of which appears once. Returns the entries to write.
    pub fn compare(&mut self, rows: Vec<Provider>) -> Vec<Put> {
        let puts: Vec<Put> = rows.into_iter().filter_map(|row| self.compare_one(row)).collect();
        self.differences += puts.len() as u64;
        puts
    }

    fn compare_one(&mut self, row: Provider) -> Option<Put> {
        let over = match self.mirrored.remove(&row.provider) {
            None => Overwrite::Older,
            Some(kept) if kept.version < row.version => Overwrite::Older,
            Some(kept) if kept.version == row.version && kept.digest == Some(digest(&row)) => return None,
            Some(kept) => Overwrite::Exactly(kept.version),
        };
        let entry = MirrorEntry::Row(row);
        Some(Put { entry, over })
    }

    /// Whether the mirror has rows that the ledger lacks. Call it after the last row of the ledger.
    #[must_use]
    pub fn is_beyond(&self) -> bool {
        self.mirrored.values().any(|kept| kept.digest.is_some())
    }

    /// The removals of the rows that the ledger lacks. Call it after the last row of the ledger. Each removal is at
    /// least as new as its row, so that a slow writer cannot restore it, and older than every later write.
    #[must_use]
    pub fn rest(&mut self) -> Vec<Put> {
        let beyond = self.mirrored.drain().filter(|(_, kept)| kept.digest.is_some());
        let puts: Vec<Put> = beyond
            .map(|(provider, kept)| Put {
                entry: MirrorEntry::Gone {
                    provider,
                    version: self.drawn.max(kept.version),
                },
                over: Overwrite::Exactly(kept.version),
            })
            .collect();
        self.differences += puts.len() as u64;
        puts
    }

    /// The number of differences so far.
    #[must_use]
    pub fn differences(&self) -> u64 {
        self.differences
    }
}

/// A hash of a row without its heartbeat. Two different rows collide with a probability of 2^-64.
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

    fn gone(name: &str, version: u64) -> MirrorEntry {
        MirrorEntry::Gone {
            provider: ProviderId::new(name).unwrap(),
            version: Version(version),
        }
    }

    fn over(puts: &[Put]) -> Vec<(String, u64, Overwrite)> {
        let mut all: Vec<_> = puts
            .iter()
            .map(|put| (put.entry.provider().to_string(), put.entry.version().0, put.over))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    #[test]
    fn only_differences_are_written() {
        let mut comparison = Comparison::new(Version(50));
        for entry in [
            MirrorEntry::Row(row("same", 5, 1)),
            MirrorEntry::Row(row("older", 5, 1)),
            MirrorEntry::Row(row("other", 5, 1)),
            MirrorEntry::Row(row("newer", 9, 1)),
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
            ("back", 8, Overwrite::Older),
            ("missing", 3, Overwrite::Older),
            ("newer", 8, Overwrite::Exactly(Version(9))),
            ("older", 6, Overwrite::Older),
            ("other", 5, Overwrite::Exactly(Version(5))),
        ];
        assert_eq!(
            over(&puts),
            expected.map(|(name, version, over)| (name.to_owned(), version, over))
        );
        assert_eq!((comparison.rest(), comparison.differences()), (Vec::new(), 5));
    }

    #[test]
    fn rows_missing_in_the_ledger_are_removed_for_good() {
        let mut comparison = Comparison::new(Version(50));
        comparison.saw(&MirrorEntry::Row(row("old", 5, 1)));
        comparison.saw(&MirrorEntry::Row(row("old", 4, 1)));
        // The ledger lost data, or the provider was removed just now.
        comparison.saw(&MirrorEntry::Row(row("young", 60, 1)));
        assert!(comparison.compare(Vec::new()).is_empty());
        let expected = [
            ("old".to_owned(), 50, Overwrite::Exactly(Version(5))),
            ("young".to_owned(), 60, Overwrite::Exactly(Version(60))),
        ];
        assert_eq!(over(&comparison.rest()), expected);
        assert_eq!(comparison.differences(), 2);
    }
}
