//! The events and the report of a pass.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::brake::Brake;

use super::step::Candidate;
use crate::health::Break;

/// The result of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassReport {
    /// The id of the pass, as in the log.
    pub pass: String,
    /// Entries scanned, in all scans.
    pub scanned: u64,
    /// Entries whose value contains no owner. They are kept.
    pub skipped: u64,
    /// The keys of the first of them.
    pub skipped_first: Vec<Vec<u8>>,
    /// Owners in the hash.
    pub owners: u64,
    /// Owners whose heartbeat has no ttl, so they can never count as dead.
    pub endless: u64,
    /// Dead owners and their numbers of entries.
    pub dead: BTreeMap<Vec<u8>, u64>,
    /// Entries removed, by owner.
    pub evicted: BTreeMap<Vec<u8>, u64>,
    /// Entries with unknown outcome: the reply was lost, and then the store's data.
    pub unsure: u64,
    /// Set when the brake holds owners back.
    pub braked: Option<Brake>,
    /// The breaks of the store's health. After each, the checks started again.
    pub breaks: Vec<Break>,
    /// Set when the store's health did not hold for long enough: nothing (more) was removed in this pass.
    pub quarantined: Option<Break>,
}

impl PassReport {
    /// The total of removed entries.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.values().sum()
    }
}

/// What a pass would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// Entries scanned.
    pub scanned: u64,
    /// Entries whose value contains no owner.
    pub skipped: u64,
    /// The keys of the first of them.
    pub skipped_first: Vec<Vec<u8>>,
    /// Owners in the hash.
    pub owners: u64,
    /// Owners whose heartbeat has no ttl.
    pub endless: u64,
    /// Owners without a heartbeat now and their numbers of entries.
    pub dead: BTreeMap<Vec<u8>, u64>,
    /// The first entries that would be removed, at most 1,000.
    pub doomed: Vec<Candidate>,
    /// Set when the brake would hold owners back.
    pub braked: Option<Brake>,
}

/// An event of a running pass.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A page of the hash was read.
    Scanned {
        /// How many entries.
        entries: u64,
        /// The size of their fields and values.
        bytes: u64,
    },
    /// Owners without a heartbeat were found. They are checked again after the wait.
    Settling {
        /// How many owners.
        absent: u64,
        /// The time until then.
        wait: Duration,
    },
    /// The store's health broke. Removal pauses until it has held for long enough.
    Quarantined(&'a Break),
    /// The store's health has held for long enough again.
    Settled,
    /// The brake is engaged.
    Braked(&'a Brake),
    /// The brake is off again, for this reason.
    Unbraked(&'static str),
    /// These entries are about to be removed, unless they change.
    Evicting(&'a [Candidate]),
    /// Entries were removed.
    Evicted {
        /// The owner.
        owner: &'a [u8],
        /// How many.
        entries: u64,
    },
    /// A reply was lost for good: up to this many entries may have been removed without being counted.
    Unsure {
        /// The upper limit.
        entries: u64,
    },
}
