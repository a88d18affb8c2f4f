//! Keeps in the file whether it is whole or may have forgotten ([`Recall`], which decides what that withholds).
//!
//! A grant is on disk before it is answered, so a file that is the one served last, with all its commits, has forgotten
//! nothing, and a start withholds nothing. Any other file may have forgotten who holds a lease: one that is new or empty
//! (its predecessor may be lost), an older copy, one whose log was cut. The end of the wait is in the file before the store is
//! served.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::engine::{Commit, StoreClock};
use tenure_core::recall::Recall;
use tenure_core::time::show_duration;
use tenure_core::{Clock, Error, ErrorKind, Result, StoreTime};

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

/// What an open file remembers of itself. The writer alone has it.
#[derive(Debug)]
pub(crate) struct Life {
    /// The number of the last commit.
    commits: u64,
    /// The longest ttl that was served.
    longest: Duration,
    marker: Marker,
}

impl Life {
    /// Judges a file that was opened, and writes its wait down; then its mark, on disk when this returns. Answers the recall
    /// as well.
    ///
    /// # Errors
    /// As [`unreadable`] for the file; `Misconfigured` when the mark cannot be written.
    pub(crate) fn begin(
        path: &Path,
        found: &Found,
        sql: &Connection,
        clock: &StoreClock,
        max_ttl: Duration,
    ) -> Result<(Self, Recall)> {
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
        let life = Self {
            commits: mark.commits,
            longest: mark.longest,
            marker,
        };
        Ok((life, recall))
    }

    /// The longest ttl that was ever served.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Counts the commit that is under way, as its last change.
    pub(crate) fn count(&self, sql: &Connection, commit: &Commit) -> Result<(), Cause> {
        let (until, why) = columns(commit.recall);
        sql.prepare_cached(COMMIT)?
            .execute(params![number(self.commits + 1), instant(commit.at), until, why])?;
        Ok(())
    }

    /// The commit is durable.
    pub(crate) fn committed(&mut self, longest: Duration) {
        self.commits += 1;
        self.longest = self.longest.max(longest);
        self.note();
    }

    /// Writes the mark. After something that does not count it may be about another log.
    pub(crate) fn note(&mut self) {
        if let Err(error) = self.marker.note(self.commits, self.longest) {
            tracing::warn!(%error, "the mark beside the SQLite file was not written");
        }
    }

    /// The file is complete without its log.
    pub(crate) fn close(&mut self) {
        if let Err(error) = self.marker.close() {
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
