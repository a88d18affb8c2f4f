//! The events and reports of passes over sessions.

use std::fmt;
use std::time::Duration;

use tenure_core::time::StoreTime;

use crate::health::Break;
use crate::text;

/// The sessions of a keyspace by state, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCounts {
    /// Keys of the pattern that were scanned.
    pub scanned: u64,
    /// Active sessions.
    pub active: u64,
    /// Disconnected sessions.
    pub disconnected: u64,
    /// Keys that are not hashes.
    pub not_hash: u64,
    /// Sessions whose field is not a time in the unit.
    pub invalid: u64,
    /// All entries of the index.
    pub entries: u64,
    /// Foreign entries with a time more than a day ahead. Their sessions are never reaped.
    pub never_due: u64,
}

/// The result of an index pass, or of its preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexReport {
    /// The sessions. `entries` is counted at the end.
    pub counts: SessionCounts,
    /// When the pass started, by the store's clock.
    pub began: StoreTime,
    /// Missing entries that were added.
    pub added: u64,
    /// Our entries that got a new time.
    pub updated: u64,
    /// Our entries that were removed: their session is active or gone, or the key is not a session any more.
    pub removed: u64,
    /// Foreign entries that got the time of their session, or were removed. Only by a repair.
    pub repaired: u64,
    /// Entries of steps without a reply: up to this many more may have been changed.
    pub unsure: u64,
    /// How often the scan started again because the store was unreachable.
    pub restarts: u64,
    /// Consecutive passes without a change, including this one. 0 for a dry run.
    pub quiet: u64,
    /// Whether the pass was stopped early.
    pub stopped: bool,
}

impl IndexReport {
    /// Whether nothing was changed, as far as known.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.changed() + self.unsure == 0
    }

    /// The number of changed entries.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.added + self.updated + self.removed + self.repaired
    }
}

/// The differences between the index and the sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// The sessions.
    pub counts: SessionCounts,
    /// Disconnected sessions without an entry.
    pub missing: u64,
    /// Sessions without an entry that disconnected after a given time. They do not count as missing.
    pub fresh: u64,
    /// Entries without a disconnected session.
    pub extra: u64,
    /// Entries whose time differs from their session's.
    pub differing: u64,
    /// The first differences, at most 1,000.
    pub listed: Vec<Difference>,
}

impl Comparison {
    /// Whether the index matches the sessions.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.missing + self.extra + self.differing == 0
    }
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// A disconnected session without an entry.
    Missing,
    /// An entry whose time differs from its session's.
    Differing,
    /// An entry without a disconnected session.
    Extra,
}

impl DifferenceKind {
    /// One word, for people and programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Differing => "differing",
            Self::Extra => "extra",
        }
    }
}

/// One difference between a session and its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The session's id.
    pub id: Vec<u8>,
    /// The kind of the difference.
    pub kind: DifferenceKind,
    /// The session's disconnect time; empty if it is not disconnected.
    pub session: Vec<u8>,
    /// The index entry's time; empty without an entry.
    pub index: Vec<u8>,
    /// Whether the entry is ours, or would be. Foreign entries are changed only by a repair.
    pub ours: bool,
}

/// The result of an undo, or of its preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UndoReport {
    /// Our entries that were removed.
    pub removed: u64,
    /// Entries that were ours, but were changed or removed by another program.
    pub not_ours: u64,
    /// Entries of a step without a reply: up to this many more may have been removed.
    pub unsure: u64,
}

/// A session that would be reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Its id.
    pub id: Vec<u8>,
    /// The reference counts and aliases that would be deleted with it.
    pub keys: Vec<Vec<u8>>,
}

/// The result of a reaper's pass, or of its preview.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapReport {
    /// The id of the pass, as in the log.
    pub pass: String,
    /// Old entries of the index that were checked.
    pub looked: u64,
    /// Sessions reaped.
    pub reaped: u64,
    /// Reaped sessions without a reference count, although count keys are configured.
    pub uncounted: u64,
    /// Entries without a session, removed from the index.
    pub without_session: u64,
    /// Sessions that are active again. They are kept.
    pub active: u64,
    /// Sessions that were resumed in between and are disconnected for a shorter time than their entry says. They are
    /// kept.
    pub younger: u64,
    /// Sessions with references. They are kept.
    pub referenced: u64,
    /// Entries whose key is not a hash. They are kept.
    pub not_hash: u64,
    /// Sessions whose field is not a time in the unit. They are kept.
    pub invalid: u64,
    /// Candidates with unknown outcome: the reply was lost, and then the store's data.
    pub unsure: u64,
    /// Entries with a time more than a day ahead. Their sessions are never reaped.
    pub never_due: u64,
    /// In a dry run: the first sessions that would be reaped, at most 1,000.
    pub doomed: Vec<Doomed>,
    /// Whether the limit was reached, so there may be more.
    pub limited: bool,
    /// All entries of the index at the end of the pass; `None` if the pass did not reach its end.
    pub entries: Option<u64>,
    /// How long the oldest remaining entry is overdue.
    pub oldest_overdue: Duration,
    /// Set when the store's health broke: nothing (more) is reaped until it has held for the age of an orphan.
    pub quarantined: Option<Break>,
    /// The remaining time of a quarantine.
    pub settles_in: Duration,
    /// The store's time for the pass, without pauses.
    pub took: Duration,
}

/// An event of a reaper's pass.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReapNotice<'a> {
    /// These sessions are about to be reaped, unless they change.
    Reaping(&'a [Vec<u8>]),
    /// This session was reaped, or in a dry run would be.
    Reaped(&'a [u8]),
    /// No session of the first page has a reference count, although count keys are configured. The number of sessions.
    Uncounted(u64),
    /// The store's health broke. Reaping pauses until it has held for the age of an orphan.
    Quarantined(&'a Break),
    /// The store's health has held for long enough.
    Settled,
    /// A reply was lost for good: up to this many sessions may have been reaped without being counted.
    Unsure(u64),
}

impl ReapReport {
    /// Whether nothing was reaped, as far as known.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.reaped + self.without_session + self.unsure == 0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, session, index) = (text(&self.id), text(&self.session), text(&self.index));
        let whose = if self.ours { "our entry" } else { "the foreign entry" };
        match self.kind {
            DifferenceKind::Missing => write!(f, "{id} disconnected {session}, without an entry"),
            DifferenceKind::Differing => write!(f, "{id} disconnected {session}, {whose} says {index}"),
            DifferenceKind::Extra => write!(f, "{id} not disconnected, {whose} says {index}"),
        }
    }
}
