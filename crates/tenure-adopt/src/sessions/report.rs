//! What passes over sessions tell, while they run and when they are done.

use std::fmt;
use std::time::Duration;

use tenure_core::time::StoreTime;

use crate::health::Break;
use crate::text;

/// What the sessions of a keyspace are, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Keys of the pattern that were looked at.
    pub scanned: u64,
    /// Sessions that are active.
    pub active: u64,
    /// Sessions that are disconnected.
    pub disconnected: u64,
    /// Keys that are no hashes.
    pub not_hash: u64,
    /// Sessions whose field is no time in the unit.
    pub invalid: u64,
    /// Entries of the index, ours and those of others.
    pub entries: u64,
    /// Entries of others whose time is more than a day ahead, which is none: no reaper ever comes to their sessions.
    pub never_due: u64,
}

/// What a pass of the index did, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexReport {
    /// What there is. `entries` is counted at the end.
    pub standing: Standing,
    /// When the pass began, by the store's clock.
    pub began: StoreTime,
    /// Entries that were missing.
    pub added: u64,
    /// Entries of ours that got another time.
    pub updated: u64,
    /// Entries of ours that were taken out: their session is active, gone, or no session any more.
    pub removed: u64,
    /// Entries of others that got the time of their session, or were taken out. Only by a repair.
    pub repaired: u64,
    /// Entries of steps without a reply: up to so many more may have been changed.
    pub unsure: u64,
    /// How often the scan was begun anew, because the store was away.
    pub restarts: u64,
    /// How many passes in a row have changed nothing, this one included. 0 for a dry run.
    pub quiet: u64,
    /// Whether it was told to end before its end.
    pub stopped: bool,
}

impl IndexReport {
    /// Whether nothing was changed for all that is known.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.changed() + self.unsure == 0
    }

    /// How many entries the pass changed.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.added + self.updated + self.removed + self.repaired
    }
}

/// How the index and the sessions differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// What there is.
    pub standing: Standing,
    /// Disconnected sessions without an entry.
    pub missing: u64,
    /// Those that disconnected since a given time, and are not counted as missing.
    pub fresh: u64,
    /// Entries without a disconnected session.
    pub extra: u64,
    /// Entries with another time than their session.
    pub differing: u64,
    /// The first differences, at most 1,000.
    pub listed: Vec<Difference>,
}

impl Comparison {
    /// Whether they say the same.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.missing + self.extra + self.differing == 0
    }
}

/// How an entry is wrong, or what was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A disconnected session without an entry.
    Missing,
    /// An entry with another time than its session.
    Differing,
    /// An entry without a disconnected session.
    Extra,
}

impl Kind {
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
    /// How they differ.
    pub kind: Kind,
    /// Since when the session says that it is disconnected; empty when it does not.
    pub session: Vec<u8>,
    /// What the index says; empty without an entry.
    pub index: Vec<u8>,
    /// Whether we added the entry, or would add one. Those of others are changed only by a repair.
    pub ours: bool,
}

/// What an undo took out, or would take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UndoReport {
    /// Entries that we had added.
    pub removed: u64,
    /// Entries that we had added once and that are not ours any more: somebody else changed or removed them.
    pub not_ours: u64,
    /// Entries of a step without a reply: up to so many more may have been taken out.
    pub unsure: u64,
}

/// A session that would be reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Its id.
    pub id: Vec<u8>,
    /// The keys of counts and aliases that would go with it.
    pub keys: Vec<Vec<u8>>,
}

/// What a pass of the reaper did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapReport {
    /// The name of the pass, as in the log.
    pub pass: String,
    /// Old entries of the index that were looked at.
    pub looked: u64,
    /// Sessions reaped.
    pub reaped: u64,
    /// Those of them for which no key that counts was there, although such keys are named.
    pub uncounted: u64,
    /// Entries without a session, taken out of the index.
    pub without_session: u64,
    /// Sessions that are active again. They are kept.
    pub active: u64,
    /// Sessions that were active in between and are disconnected for a shorter time than their entry says. They are kept.
    pub younger: u64,
    /// Sessions that somebody refers to. They are kept.
    pub referenced: u64,
    /// Entries whose key is no hash. They are kept.
    pub not_hash: u64,
    /// Sessions whose field is no time in the unit. They are kept.
    pub invalid: u64,
    /// Candidates of which nobody can tell whether they were reaped by us: the reply was lost, and then the store's data.
    pub unsure: u64,
    /// Entries whose time is more than a day ahead, which is none: no reaper ever comes to their sessions.
    pub never_due: u64,
    /// In a dry run: the first of the sessions that would be reaped, at most 1,000.
    pub doomed: Vec<Doomed>,
    /// Whether there may be more: the limit was reached.
    pub limited: bool,
    /// Entries of the index at the end of the pass, ours and those of others; `None` for a pass that did not come there.
    pub entries: Option<u64>,
    /// For how long the oldest entry has been older than an orphan that the pass left in the index.
    pub oldest_overdue: Duration,
    /// Set when the store's health broke: nothing (more) is reaped until it held for the age of an orphan.
    pub quarantined: Option<Break>,
    /// How long a quarantine lasts still.
    pub settles_in: Duration,
    /// How long the store was at work, pauses left out.
    pub took: Duration,
}

/// Something that happens while a reaper's pass runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReapNotice<'a> {
    /// These sessions are about to be reaped, if they still are orphans.
    Reaping(&'a [Vec<u8>]),
    /// This session was reaped. In a dry run: it would be.
    Reaped(&'a [u8]),
    /// For none of the sessions of the first page there was a key that counts, although such keys are named: this many.
    Uncounted(u64),
    /// The store's health broke: nothing is reaped until it held for the age of an orphan.
    Quarantined(&'a Break),
    /// The store's health held for long enough.
    Settled,
    /// A reply was lost for good: so many sessions may have been reaped without being counted.
    Unsure(u64),
}

impl ReapReport {
    /// Whether nothing was reaped, nor may have been.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.reaped + self.without_session + self.unsure == 0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, session, index) = (text(&self.id), text(&self.session), text(&self.index));
        let whose = if self.ours { "our entry" } else { "the entry of others" };
        match self.kind {
            Kind::Missing => write!(f, "{id} disconnected {session}, without an entry"),
            Kind::Differing => write!(f, "{id} disconnected {session}, {whose} says {index}"),
            Kind::Extra => write!(f, "{id} not disconnected, {whose} says {index}"),
        }
    }
}
