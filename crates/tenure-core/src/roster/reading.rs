//! What the mirror answers.

use std::collections::BTreeMap;

use super::put::{Entry, Standing};
use crate::ledger::{Candidate, Provider, RosterStats, Version};
use crate::time::StoreTime;

/// What every reply tells about the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Whether all that the ledger had has ever arrived in this life of the data. A mirror that is not seeded must not be
    /// believed: it may lack anybody.
    pub seeded: bool,
    /// The highest version that was ever taken over. One that falls tells that the store has lost the end of its data.
    pub high: Version,
    /// The version of the settings that are there.
    pub settings: Version,
    /// When the store last resumed serving after a gap.
    pub resumed_at: StoreTime,
    /// The store's time of the reply.
    pub as_of: StoreTime,
}

/// A row, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The row, with the time of the last heartbeat if it is alive, and without one if it is not.
    pub row: Provider,
    /// How its tenure stands now. A reader ends nobody: one past its end time reads as `Ended`.
    pub standing: Standing,
}

impl Seen {
    /// Whether it can take work now.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.standing == Standing::Alive && self.row.has_room()
    }
}

/// Who can take work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// In order.
    pub candidates: Vec<Candidate>,
    /// Where to read on; `None` at the end.
    pub next: Option<String>,
    /// About the mirror.
    pub stamp: Stamp,
}

/// How many can take work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Availability {
    /// How many.
    pub count: u64,
    /// When they were counted.
    pub as_of: StoreTime,
    /// Whether everyone was looked at. If not, those whose ttl may be over beyond [`MAX_OVERDUE`](super::MAX_OVERDUE) of
    /// them are not in the count: it is never too high.
    pub complete: bool,
    /// About the mirror.
    pub stamp: Stamp,
}

/// Providers that were looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// In the order asked.
    pub seen: Vec<Option<Seen>>,
    /// About the mirror.
    pub stamp: Stamp,
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// They.
    pub rows: Vec<Seen>,
    /// Where to read on; `None` at the end.
    pub next: Option<String>,
    /// About the mirror.
    pub stamp: Stamp,
}

/// How many are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The counts; `dirty` is the ledger's to tell, and 0 here. One whose tenure ended and whom the ledger has not followed
    /// yet counts as offline.
    pub stats: RosterStats,
    /// Ended tenures that the ledger has to follow.
    pub pending: u64,
    /// As in [`Availability`].
    pub complete: bool,
    /// About the mirror.
    pub stamp: Stamp,
}

/// A part of the mirror that was gone through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// What is there: rows and removals, each once at least over all parts.
    pub entries: Vec<Entry>,
    /// What was mended, by kind ([`drift`](crate::sweep::drift)).
    pub repaired: BTreeMap<String, u64>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// About the mirror.
    pub stamp: Stamp,
}
