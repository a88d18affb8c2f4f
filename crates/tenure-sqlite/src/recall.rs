//! Whether the store is whole or may have forgotten, and until when it grants no lease because of that.
//!
//! A grant is on disk before it is answered, so a file that is the one served last, with all its commits, has forgotten
//! nothing, and a start withholds nothing. Any other file may have forgotten who holds a lease: one that is new or empty
//! (its predecessor may be lost), an older copy, one whose log was cut. Then no lease is granted until the trust of every
//! holder that could be forgotten is over: the largest ttl that was allowed or served. The end of that wait is in the file
//! before the store is served, so a restart neither shortens it nor begins it again.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::settling::GapCause;
use tenure_core::time::show_duration;
use tenure_core::{Clock, Error, ErrorKind, Result, StoreTime};

use crate::clock::StoreClock;
use crate::error::Cause;
use crate::file::{BUSY_TIMEOUT, STORE, unreadable};
use crate::found::{Contents, Found};
use crate::mark::{Identity, LogMark, Mark, Marker, mark_path};
use crate::sql::{instant, number, statements};
use crate::wal::Salts;
use crate::watch::beside;

statements! { "recall.sql":
    BEGIN = "begin",
    COMMIT = "commit",
}

/// Why a store may have forgotten something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It was empty.
    New,
    /// There was no mark beside it.
    Unmarked,
    /// Its mark is that of another file.
    Replaced,
    /// It lacks commits that its mark counts.
    Older,
    /// Its log lacks commits that its mark counts.
    CutShort,
    /// A member knows a number that it never gave out.
    Proven,
}

impl Why {
    const ALL: [Self; 6] = [
        Self::New,
        Self::Unmarked,
        Self::Replaced,
        Self::Older,
        Self::CutShort,
        Self::Proven,
    ];

    /// As it is kept in the file.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Unmarked => "unmarked",
            Self::Replaced => "replaced",
            Self::Older => "older",
            Self::CutShort => "cut_short",
            Self::Proven => "proven",
        }
    }

    /// Where commits are known to be missing, something was there that may have been held.
    fn cause(self) -> GapCause {
        match self {
            Self::New | Self::Unmarked | Self::Replaced => GapCause::New,
            Self::Older | Self::CutShort | Self::Proven => GapCause::DataLoss,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == text)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new or emptied store",
            Self::Unmarked => "the mark beside the file is missing or unreadable, so it may be an older copy",
            Self::Replaced => "the file is not the one that was served last, so it may be an older copy",
            Self::Older => "the file is older than what was served last",
            Self::CutShort => "the log of the file was lost or cut short: its last commits are missing",
            Self::Proven => "a member named a number that this file never gave out: it is an older copy",
        })
    }
}

/// What the store can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recall {
    /// It has forgotten nothing.
    Whole,
    /// It may have forgotten; nothing is granted until then.
    MayHaveForgotten { why: Why, until: StoreTime },
}

/// What an open file remembers of itself.
#[derive(Debug)]
pub(crate) struct Life {
    max_ttl: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    identity: Identity,
    recall: Recall,
    /// Until when a beat is believed that proves a loss; once.
    believes_until: StoreTime,
    /// The number of the last commit, and of the one under way.
    commits: u64,
    committing: bool,
    /// The longest ttl that was served.
    longest: Duration,
    marker: Marker,
}

impl Life {
    /// Judges a file that was opened, and writes its wait down; then its mark, on disk when this returns.
    ///
    /// # Errors
    /// As [`unreadable`] for the file; `Misconfigured` when the mark cannot be written.
    pub(crate) fn begin(
        path: &Path,
        found: &Found,
        sql: &Connection,
        clock: &StoreClock,
        max_ttl: Duration,
    ) -> Result<Self> {
        let now = clock.now();
        let judged = judge(path, found, sql, (clock, now, max_ttl));
        let (recall, mark) = judged.map_err(|cause| unreadable(path, &STORE, &cause))?;
        let marker = Marker::begin(path, mark).map_err(|error| {
            let message = format!(
                "{} cannot be written ({error}); look at the directory",
                mark_path(path).display()
            );
            Error::new(ErrorKind::Misconfigured, message).because(error)
        })?;
        if let Recall::MayHaveForgotten { why, until } = recall {
            let wait = show_duration(round_up(until.since(now)));
            tracing::warn!(file = %path.display(), why = why.as_str(), "{why}; no lease is granted for {wait}");
        }
        Ok(Self {
            max_ttl,
            state: Mutex::new(State {
                identity: mark.identity,
                recall,
                believes_until: now + max_ttl,
                commits: mark.commits,
                committing: false,
                longest: mark.longest,
                marker,
            }),
        })
    }

    /// Until when nothing is granted, if that is later than now, and why: the store counts as new until a member proves
    /// that it is not.
    pub(crate) fn waits(&self, now: StoreTime) -> Option<(GapCause, StoreTime)> {
        match self.state().recall {
            Recall::MayHaveForgotten { why, until } if now < until => Some((why.cause(), until)),
            _ => None,
        }
    }

    /// An operator's word that nothing was held ends a wait of this cause, for groups to come as well. The next commit writes
    /// it down.
    pub(crate) fn settle(&self, named: Option<GapCause>) {
        let mut state = self.state();
        if let Recall::MayHaveForgotten { why, .. } = state.recall
            && why.cause().is_ended_by(named)
        {
            state.recall = Recall::Whole;
        }
    }

    /// Whether a beat that names an unknown number would be believed now. A file that is served does not lose its tail:
    /// only a start can have brought an older one.
    pub(crate) fn believes(&self, now: StoreTime) -> bool {
        now < self.state().believes_until
    }

    /// A beat proves that the file is an older copy. It is believed within one max ttl after a start, once.
    pub(crate) fn believe(&self, now: StoreTime) -> bool {
        let believed = self.believes(now);
        if believed {
            self.forget(Why::Proven, now);
        }
        believed
    }

    /// The store may have forgotten something.
    fn forget(&self, why: Why, now: StoreTime) {
        let mut state = self.state();
        let wait = self.max_ttl.max(state.longest);
        state.recall = forgotten(state.recall, why, now + wait);
        state.believes_until = StoreTime::ZERO;
        drop(state);
        tracing::error!(
            why = why.as_str(),
            "{why}; no lease is granted for {}",
            show_duration(wait)
        );
    }

    /// Compares the file with memory after it was opened again. Answers whether it fell back.
    pub(crate) fn compare(&self, sql: &Connection, now: StoreTime) -> Result<bool, Cause> {
        let contents = Contents::read(sql)?;
        let mut state = self.state();
        let is_same = contents.identity == Some(state.identity) && contents.commits >= state.commits;
        state.commits = state.commits.max(contents.commits);
        drop(state);
        if !is_same {
            self.forget(Why::Older, now);
        }
        Ok(!is_same)
    }

    /// Counts the commit that is under way, as its last change.
    pub(crate) fn count(&self, sql: &Connection, now: StoreTime, longest: Duration) -> Result<(), Cause> {
        let mut state = self.state();
        state.longest = state.longest.max(longest);
        state.committing = true;
        let (until, why) = columns(state.recall);
        sql.prepare_cached(COMMIT)?
            .execute(params![number(state.commits + 1), instant(now), until, why])?;
        Ok(())
    }

    /// The transaction was committed.
    pub(crate) fn committed(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.committing) {
            state.commits += 1;
            state.note();
        }
    }

    /// The transaction was rolled back.
    pub(crate) fn rolled_back(&self) {
        self.state().committing = false;
    }

    /// Something was written that does not count. It may have begun the log anew.
    pub(crate) fn logged(&self) {
        self.state().note();
    }

    /// The file is complete without its log.
    pub(crate) fn close(&self) {
        if let Err(error) = self.state().marker.close() {
            tracing::warn!(%error, "the mark beside the SQLite file was not written");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self) {
        let (commits, longest) = (self.commits, self.longest);
        if let Err(error) = self.marker.note(commits, longest) {
            tracing::warn!(%error, "the mark beside the SQLite file was not written");
        }
    }
}

/// Judges what was found, writes the wait and the identity into the file, and answers them with the mark that fits.
fn judge(
    path: &Path,
    found: &Found,
    sql: &Connection,
    (clock, now, max_ttl): (&StoreClock, StoreTime, Duration),
) -> Result<(Recall, Mark), Cause> {
    let contents = Contents::read(sql)?;
    let longest = contents.longest.max(found.longest());
    let (judged, mut recall) = (found.judge(&contents), contents.recall(now));
    if let Some(why) = judged {
        recall = forgotten(recall, why, now + max_ttl.max(longest));
    }
    // A file that may have forgotten begins a life of its own, so that no other copy passes for it later.
    let identity = contents.identity.filter(|_| judged.is_none());
    let identity = identity.unwrap_or_else(|| draw(clock.local()));
    let commits = contents.commits.max(found.commits()) + 1;
    let (until, why) = columns(recall);
    sql.execute(BEGIN, params![identity.to_string(), number(commits), until, why])?;
    // With an empty log the file itself is what the next log is based on. Another program that reads it is in the way.
    sql.busy_timeout(Duration::ZERO)?;
    let is_busy: bool = sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    sql.busy_timeout(BUSY_TIMEOUT)?;
    let left = is_busy.then(|| File::open(beside(path, "-wal")).ok()).flatten();
    let mark = Mark {
        identity,
        inode: found.inode,
        commits,
        log: left
            .as_ref()
            .and_then(Salts::of)
            .map(|salts| LogMark { salts, base: 0 }),
        longest,
    };
    Ok((recall, mark))
}

/// Adds a reason to wait; the later end counts.
fn forgotten(before: Recall, why: Why, until: StoreTime) -> Recall {
    match before {
        Recall::MayHaveForgotten { until: earlier, .. } => Recall::MayHaveForgotten {
            why,
            until: until.max(earlier),
        },
        Recall::Whole => Recall::MayHaveForgotten { why, until },
    }
}

fn columns(recall: Recall) -> (i64, Option<&'static str>) {
    match recall {
        Recall::Whole => (0, None),
        Recall::MayHaveForgotten { why, until } => (instant(until), Some(why.as_str())),
    }
}

fn draw(clock: &dyn Clock) -> Identity {
    Identity((u128::from(clock.entropy()) << 64) | u128::from(clock.entropy()))
}

/// Whole seconds, for people.
fn round_up(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}
