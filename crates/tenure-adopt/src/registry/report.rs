//! What a pass tells while it runs and when it is done.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::brake::Brake;

use super::step::Candidate;
use crate::health::Break;

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassReport {
    /// The name of the pass, as in the log.
    pub pass: String,
    /// Entries looked at, in all scans.
    pub scanned: u64,
    /// Entries whose value names no owner. They are kept.
    pub skipped: u64,
    /// Owners that the hash names.
    pub owners: u64,
    /// Owners whose heartbeat has no ttl, so that they can never count as dead.
    pub endless: u64,
    /// Owners that counted as dead, with how many entries named each.
    pub dead: BTreeMap<Vec<u8>, u64>,
    /// Entries removed, by owner.
    pub evicted: BTreeMap<Vec<u8>, u64>,
    /// Entries of which nobody can tell whether they were removed by us: the reply was lost, and then the store's data.
    pub unsure: u64,
    /// Set when the brake holds something back.
    pub braked: Option<Brake>,
    /// What broke the store's health, each time the looks began anew.
    pub breaks: Vec<Break>,
    /// Set when the store's health never held for long enough: nothing (more) was removed in this pass.
    pub quarantined: Option<Break>,
}

impl PassReport {
    /// All entries removed.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.values().sum()
    }
}

/// What a pass would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// Entries looked at.
    pub scanned: u64,
    /// Entries whose value names no owner.
    pub skipped: u64,
    /// Owners that the hash names.
    pub owners: u64,
    /// Owners whose heartbeat has no ttl.
    pub endless: u64,
    /// Owners without a heartbeat now, with how many entries name each.
    pub dead: BTreeMap<Vec<u8>, u64>,
    /// The first of the entries that would go, at most 1,000.
    pub doomed: Vec<Candidate>,
    /// Set when the brake would hold something back.
    pub braked: Option<Brake>,
}

/// Something that happens while a pass runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A page of the hash was read.
    Scanned {
        /// How many entries.
        entries: u64,
    },
    /// Owners without a heartbeat were found; they are looked at again after a while.
    Settling {
        /// How many owners.
        absent: u64,
        /// How long until then.
        wait: Duration,
    },
    /// The store's health broke: nothing is removed until it held for long enough.
    Quarantined(&'a Break),
    /// The store's health held for long enough again.
    Settled,
    /// The brake is engaged.
    Braked(&'a Brake),
    /// The brake is off again, for this reason.
    Unbraked(&'static str),
    /// These entries are about to be removed, if they still are what they were.
    Evicting(&'a [Candidate]),
    /// Entries were removed.
    Evicted {
        /// Whose.
        owner: &'a [u8],
        /// How many.
        entries: u64,
    },
    /// A reply was lost for good: this many entries may have been removed without being counted.
    Unsure {
        /// At most how many.
        entries: u64,
    },
}
