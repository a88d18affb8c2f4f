//! Keeps in the file whether it is whole or may have forgotten ([`Recall`], which decides what that withholds).
//!
//! A grant is on disk before it is answered, so a file that is the one served last, with all its commits, has forgotten
//! nothing, and a start withholds nothing. Any other file may have forgotten who holds a lease: one that is new or empty
//! (its predecessor may be lost), an older copy, one whose log was cut. The end of the wait is in the file before the store is
//! served.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::recall::{Doubt, Recall, believes_an_older_copy};
use tenure_core::settling::GapCause;
use tenure_core::sweep::Unsettled;
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
    /// What it was before the open transaction settled it.
    before_settling: Option<Recall>,
    /// When the file was opened, until a beat has proved a loss.
    started_at: Option<StoreTime>,
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
        if let Some((doubt, until)) = recall.kept() {
            let wait = show_duration(round_up(until.since(now)));
            tracing::warn!(file = %path.display(), why = doubt.as_str(), "{doubt}; no lease is granted for {wait}");
        }
        Ok(Self {
            max_ttl,
            state: Mutex::new(State {
                identity: mark.identity,
                recall,
                before_settling: None,
                started_at: Some(now),
                commits: mark.commits,
                committing: false,
                longest: mark.longest,
                marker,
            }),
        })
    }

    /// Why and until when nothing is granted, if that is later than now.
    pub(crate) fn wait(&self, now: StoreTime) -> Option<Unsettled> {
        let mut state = self.state();
        let longest = self.max_ttl.max(state.longest);
        state.recall.wait(now, longest)
    }

    /// An operator's word that nothing was held, in a step: its commit writes it down.
    pub(crate) fn settle(&self, named: Option<GapCause>) {
        let mut state = self.state();
        let before = state.recall;
        state.before_settling.get_or_insert(before);
        state.recall.settle(named);
    }

    /// Whether a beat that names an unknown number would be believed now.
    pub(crate) fn believes(&self, now: StoreTime) -> bool {
        believes_an_older_copy(self.state().started_at, now, self.max_ttl)
    }

    /// A beat proves that the file is an older copy, if it is believed.
    pub(crate) fn believe(&self, now: StoreTime) -> bool {
        let believed = self.believes(now);
        if believed {
            self.doubt(Doubt::Proven, now);
        }
        believed
    }

    /// The store has forgotten something.
    fn doubt(&self, doubt: Doubt, now: StoreTime) {
        let mut state = self.state();
        let wait = self.max_ttl.max(state.longest);
        state.recall.doubt(doubt, now, wait);
        state.before_settling = None;
        state.started_at = None;
        drop(state);
        tracing::error!(
            why = doubt.as_str(),
            "{doubt}; no lease is granted for {}",
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
            self.doubt(Doubt::Older, now);
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
        state.before_settling = None;
        if std::mem::take(&mut state.committing) {
            state.commits += 1;
            state.note();
        }
    }

    /// The transaction was rolled back.
    pub(crate) fn rolled_back(&self) {
        let mut state = self.state();
        state.committing = false;
        if let Some(before) = state.before_settling.take() {
            state.recall = before;
        }
    }

    /// Something was written that does not count. It may have restarted the log.
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
    let (judged, mut recall) = (found.judge(&contents), Recall::restored(contents.wait, now));
    if let Some(doubt) = judged {
        recall.doubt(doubt, now, max_ttl.max(longest));
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

fn columns(recall: Recall) -> (i64, Option<&'static str>) {
    match recall.kept() {
        Some((doubt, until)) => (instant(until), Some(doubt.as_str())),
        None => (0, None),
    }
}

fn draw(clock: &dyn Clock) -> Identity {
    Identity((u128::from(clock.entropy()) << 64) | u128::from(clock.entropy()))
}

/// Whole seconds, for people.
fn round_up(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}
