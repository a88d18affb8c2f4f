//! Walks over all sessions and all entries, to update the index or to compare.

mod tally;

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::time::StoreTime;
use tenure_valkey::connection::Reader;

use super::report::{Comparison, Difference, IndexReport, SessionCounts};
use super::step::{EntryComparison, Mode};
use super::{PAGE, Sessions, check_slots};
use crate::health::Info;
use crate::scan::{Scan, ScanSource};

use tally::{Purpose, Tally};

/// How often a walk may start again before it gives up.
const RESTARTS: u64 = 3;
/// How long it waits for an unreachable store.
const OUTAGE: Duration = Duration::from_secs(30);
/// The interval of the reconnect checks.
const BACKOFF: Duration = Duration::from_millis(500);
/// The most keys that are deduplicated. A scan of more keys may count some twice.
const REMEMBERED: usize = 10_000_000;

/// An event of a walk.
#[derive(Debug)]
#[non_exhaustive]
pub enum WalkNotice<'a> {
    /// A page was scanned: the keys of the pattern so far, and the approximate share of the keyspace.
    Page {
        /// Keys so far.
        scanned: u64,
        /// Entries changed so far; in a dry run, those that would be.
        changed: u64,
        /// From 0 to 1.
        share: f64,
    },
    /// Entries are about to be changed, or were: the results so far. Entries in flight are unsure.
    Changed(&'a IndexReport),
    /// An entry is wrong, or was.
    Difference(&'a Difference),
    /// A session was left alone, because its field is not a time in the unit.
    Invalid {
        /// Its id.
        id: &'a [u8],
        /// The text of its field.
        value: &'a [u8],
    },
    /// The store was unreachable; the walk starts again.
    Restarted(&'a Error),
}

/// Called with the events of a walk. It must return soon.
pub type WalkListener<'a> = &'a (dyn Fn(&WalkNotice<'_>) + Send + Sync);

impl Sessions {
    /// Updates the index in one pass over the keyspace: adds missing entries and corrects ours. O(keys of the
    /// database), throttled. Idempotent, and may be interrupted at any time.
    ///
    /// # Errors
    /// `Unavailable` if the store was unreachable for too long; `Denied`; `Misconfigured`. Earlier changes stay and
    /// were reported to the listener.
    pub async fn index(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        self.write(Mode::Write, listener).await
    }

    /// Like [`Sessions::index`], also for foreign entries: each gets the time of its session, or is removed if the
    /// session is active or gone. They stay foreign. An entry whose session is unreadable is left alone.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn repair(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        self.write(Mode::Repair, listener).await
    }

    async fn write(&self, mode: Mode, listener: WalkListener<'_>) -> Result<IndexReport> {
        let mut report = self.walk(Purpose::Index(mode), None, listener).await?.report;
        // An incomplete pass proves only that there were changes.
        if !report.stopped || report.changed() > 0 {
            report.quiet = self.steps.passed(report.changed()).await?;
        }
        Ok(report)
    }

    /// What [`Sessions::index`] would do now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn preview(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        Ok(self.walk(Purpose::Index(Mode::Look), None, listener).await?.report)
    }

    /// What [`Sessions::repair`] would do now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn preview_repair(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        Ok(self.walk(Purpose::PreviewRepair, None, listener).await?.report)
    }

    /// Compares all sessions with all entries of the index. Writes nothing. Sessions without an entry that disconnected
    /// after `since` are counted separately, as they may be newer than the last index pass.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn compare(&self, since: Option<StoreTime>, listener: WalkListener<'_>) -> Result<Comparison> {
        let tally = self.walk(Purpose::Compare, since, listener).await?;
        Ok(Comparison {
            counts: tally.report.counts,
            ..tally.found
        })
    }

    async fn walk(&self, purpose: Purpose, since: Option<StoreTime>, listener: WalkListener<'_>) -> Result<Tally> {
        let mut tally = Tally::default();
        self.check_cluster().await?;
        let mut away_since: Option<Mono> = None;
        loop {
            let error = match self.attempt(purpose, since, &mut tally, listener).await {
                Ok(()) => return Ok(tally),
                Err(error) => error,
            };
            let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TooLate);
            let clock = self.steps.connection.clock();
            let now = clock.mono();
            let is_too_long = now.since(*away_since.get_or_insert(now)) > OUTAGE;
            if !passing || is_too_long || tally.report.restarts >= RESTARTS {
                return Err(error);
            }
            listener(&WalkNotice::Restarted(&error));
            tracing::warn!(
                reason = error.chain(),
                "the store was unreachable during a scan; the scan starts again"
            );
            while self.steps.connection.generation().is_none() && clock.mono().since(now) < OUTAGE {
                clock.sleep(BACKOFF / 10).await;
            }
            clock.sleep(BACKOFF).await;
            // Earlier changes stay; all other counts start again.
            let before = tally.report;
            tally = Tally::default();
            if purpose.is_to_write() {
                tally.report = IndexReport {
                    counts: SessionCounts::default(),
                    ..before
                };
            }
            tally.report.restarts = before.restarts + 1;
        }
    }

    async fn attempt(
        &self,
        purpose: Purpose,
        since: Option<StoreTime>,
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<()> {
        let steps = &self.steps;
        let mut scan = steps.scan();
        tally.report.began = steps.connection.time().await?;
        let total = self.database_size().await;
        let mut looked = 0;
        while let Some(keys) = steps.page(&mut scan).await? {
            looked += steps.settings.page().max(keys.len() as u64);
            let ids: Vec<Vec<u8>> = keys.iter().filter_map(|key| self.fresh_id(key, tally)).collect();
            for some in ids.chunks(PAGE) {
                let seen = self.step(purpose, some, tally, listener).await?;
                for (id, seen) in some.iter().zip(seen) {
                    tally.scanned(purpose, since, self, id, seen, listener);
                }
                if tally.report_progress(self, listener) {
                    return Ok(());
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = if scan.is_finished() {
                1.0
            } else {
                (looked as f64 / total.max(1) as f64).min(0.99)
            };
            listener(&WalkNotice::Page {
                scanned: tally.report.counts.scanned,
                changed: tally.report.changed(),
                share,
            });
        }
        for key in self.zsets(purpose) {
            scan.continue_with(ScanSource::SortedSet(key.to_vec()));
            self.entries(purpose, &mut scan, tally, listener).await?;
            if tally.report.stopped {
                return Ok(());
            }
        }
        tally.report.counts.entries = steps.count().await?;
        tally.report.counts.never_due = steps.never_due(tally.report.began).await?;
        Ok(())
    }

    /// One step over some sessions. Its changes are unknown until the reply arrives.
    async fn step(
        &self,
        purpose: Purpose,
        ids: &[Vec<u8>],
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<Vec<EntryComparison>> {
        if !purpose.is_to_write() {
            return self.steps.index(purpose.mode(), ids).await;
        }
        tally.report.unsure += ids.len() as u64;
        listener(&WalkNotice::Changed(&tally.report));
        let done = self.steps.index(purpose.mode(), ids).await;
        if !done.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown) {
            tally.report.unsure -= ids.len() as u64;
            listener(&WalkNotice::Changed(&tally.report));
        }
        done
    }

    /// The sorted sets to scan for a purpose.
    fn zsets(&self, purpose: Purpose) -> Vec<&[u8]> {
        let (index, added) = (self.steps.keys.index.as_slice(), self.steps.keys.added.as_slice());
        match purpose {
            Purpose::Compare => vec![index],
            Purpose::Index(Mode::Repair) | Purpose::PreviewRepair => vec![index, added],
            Purpose::Index(_) => vec![added],
        }
    }

    /// The reverse direction: entries whose session is not disconnected.
    async fn entries(
        &self,
        purpose: Purpose,
        scan: &mut Scan,
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<()> {
        let mut visited = HashSet::new();
        while let Some(mut ids) = self.steps.page(scan).await? {
            ids.retain(|id| visited.len() >= REMEMBERED || visited.insert(fingerprint(id)));
            for some in ids.chunks(PAGE) {
                let seen = self.step(purpose, some, tally, listener).await?;
                for (id, seen) in some.iter().zip(seen) {
                    tally.entry(purpose, id, seen, listener);
                }
                if tally.report_progress(self, listener) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The id in a key, if it was not scanned before.
    fn fresh_id(&self, key: &[u8], tally: &mut Tally) -> Option<Vec<u8>> {
        let id = self.steps.settings.pattern.name(key).filter(|id| !id.is_empty())?;
        let is_new = tally.seen.len() >= REMEMBERED || tally.seen.insert(fingerprint(id));
        is_new.then(|| id.to_vec())
    }

    async fn database_size(&self) -> u64 {
        // Used only for the progress, so an error is ignored.
        self.steps
            .connection
            .ask(&[b"DBSIZE"], Reader::number)
            .await
            .unwrap_or(0)
    }

    /// Rejects a cluster that stores the keys of one step in different slots.
    pub(super) async fn check_cluster(&self) -> Result<()> {
        let words: &[&[u8]] = &[b"INFO", b"cluster"];
        // Without INFO, the first step fails with the reason.
        let Ok(Some(info)) = self.steps.connection.ask(words, Reader::maybe_bytes).await else {
            return Ok(());
        };
        if Info::parse(&String::from_utf8_lossy(&info)).cluster {
            check_slots(&self.steps.keys, &self.steps.settings, &[])?;
        }
        Ok(())
    }
}

fn fingerprint(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
