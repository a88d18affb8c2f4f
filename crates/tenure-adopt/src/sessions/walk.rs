//! Walking over all sessions and all entries: to bring the index up to date, or to compare.

mod tally;

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::time::StoreTime;
use tenure_valkey::connection::Reader;

use super::report::{Comparison, Difference, IndexReport, Standing};
use super::step::{Mode, Seen};
use super::{PAGE, Sessions, check_slots};
use crate::health::Info;
use crate::scan::{Over, Scan};

use tally::{Purpose, Tally};

/// How often a walk may begin anew before it gives up.
const RESTARTS: u64 = 3;
/// How long it waits for a store that is out of reach.
const OUTAGE: Duration = Duration::from_secs(30);
/// How often it looks whether the store is back.
const BACKOFF: Duration = Duration::from_millis(500);
/// The most keys that are told apart from their repetitions. A scan of more may count some of them twice.
const REMEMBERED: usize = 10_000_000;

/// Something that happens during a walk.
#[derive(Debug)]
#[non_exhaustive]
pub enum WalkNotice<'a> {
    /// A page was looked at: how many keys of the pattern so far, and about which share of the keyspace is done.
    Page {
        /// Keys so far.
        scanned: u64,
        /// Entries changed so far; with a dry run, those that would be.
        changed: u64,
        /// From 0 to 1.
        share: f64,
    },
    /// Entries are about to be changed, or were: what the pass did so far. What is under way is unsure.
    Changed(&'a IndexReport),
    /// An entry is wrong, or was.
    Difference(&'a Difference),
    /// The store was away: the walk begins anew.
    Restarted(&'a Error),
}

/// Hears what a walk does, while it does it. It must return soon.
pub type WalkListener<'a> = &'a (dyn Fn(&WalkNotice<'_>) + Send + Sync);

impl Sessions {
    /// Brings the index up to date in one pass over the keyspace: adds what is missing, and mends what is ours. O(keys of
    /// the database), throttled. May be repeated and interrupted at any time.
    ///
    /// # Errors
    /// `Unavailable` when the store was out of reach for too long, `Denied`, `Misconfigured`. What was changed stays, and
    /// was told to the listener.
    pub async fn index(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        self.write(Mode::Write, listener).await
    }

    /// The same for the entries of others as well: each gets the time of its session, or is taken out when that is active
    /// or gone. They stay theirs. An entry whose session cannot be understood is left alone.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn repair(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        self.write(Mode::Repair, listener).await
    }

    async fn write(&self, mode: Mode, listener: WalkListener<'_>) -> Result<IndexReport> {
        let mut report = self.walk(Purpose::Index(mode), None, listener).await?.report;
        // A pass that did not come to its end proves only that something was found.
        if !report.stopped || report.changed() > 0 {
            report.quiet = self.steps.passed(report.changed()).await?;
        }
        Ok(report)
    }

    /// Tells what [`Sessions::index`] would do now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn preview(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        Ok(self.walk(Purpose::Index(Mode::Look), None, listener).await?.report)
    }

    /// Tells what [`Sessions::repair`] would do now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn preview_repair(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        Ok(self.walk(Purpose::PreviewRepair, None, listener).await?.report)
    }

    /// Compares all sessions with all entries of the index. Writes nothing. Sessions that disconnected after `since` and
    /// have no entry are counted apart, as they may be younger than a pass that was to index them.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn compare(&self, since: Option<StoreTime>, listener: WalkListener<'_>) -> Result<Comparison> {
        let tally = self.walk(Purpose::Compare, since, listener).await?;
        Ok(Comparison {
            standing: tally.report.standing,
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
                "the store was away during a scan, which begins anew"
            );
            while self.steps.connection.life().is_none() && clock.mono().since(now) < OUTAGE {
                clock.sleep(BACKOFF / 10).await;
            }
            clock.sleep(BACKOFF).await;
            // What was changed stays changed; everything else is counted afresh.
            let before = tally.report;
            tally = Tally::default();
            if purpose.is_to_write() {
                tally.report = IndexReport {
                    standing: Standing::default(),
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
                if tally.told(self, listener) {
                    return Ok(());
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = if scan.is_over() {
                1.0
            } else {
                (looked as f64 / total.max(1) as f64).min(0.99)
            };
            listener(&WalkNotice::Page {
                scanned: tally.report.standing.scanned,
                changed: tally.report.changed(),
                share,
            });
        }
        for key in self.zsets(purpose) {
            scan.go_on_with(Over::SortedSet(key.to_vec()));
            self.entries(purpose, &mut scan, tally, listener).await?;
            if tally.report.stopped {
                return Ok(());
            }
        }
        tally.report.standing.entries = steps.count().await?;
        tally.report.standing.never_due = steps.never_due(tally.report.began).await?;
        Ok(())
    }

    /// One step over some sessions. Until its reply is there nobody knows what it changed.
    async fn step(
        &self,
        purpose: Purpose,
        ids: &[Vec<u8>],
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<Vec<Seen>> {
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

    /// Whose entries are looked at.
    fn zsets(&self, purpose: Purpose) -> Vec<&[u8]> {
        let (index, added) = (self.steps.keys.index.as_slice(), self.steps.keys.added.as_slice());
        match purpose {
            Purpose::Compare => vec![index],
            Purpose::Index(Mode::Repair) | Purpose::PreviewRepair => vec![index, added],
            Purpose::Index(_) => vec![added],
        }
    }

    /// The other way round: every entry whose session is not disconnected.
    async fn entries(
        &self,
        purpose: Purpose,
        scan: &mut Scan,
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<()> {
        let mut met = HashSet::new();
        while let Some(mut ids) = self.steps.page(scan).await? {
            ids.retain(|id| met.len() >= REMEMBERED || met.insert(fingerprint(id)));
            for some in ids.chunks(PAGE) {
                let seen = self.step(purpose, some, tally, listener).await?;
                for (id, seen) in some.iter().zip(seen) {
                    tally.entry(purpose, id, seen, listener);
                }
                if tally.told(self, listener) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The id in a key that was not met before.
    fn fresh_id(&self, key: &[u8], tally: &mut Tally) -> Option<Vec<u8>> {
        let id = self.steps.settings.pattern.name(key).filter(|id| !id.is_empty())?;
        let is_new = tally.seen.len() >= REMEMBERED || tally.seen.insert(fingerprint(id));
        is_new.then(|| id.to_vec())
    }

    async fn database_size(&self) -> u64 {
        // It is only for the progress: a server that does not tell is none the worse.
        self.steps
            .connection
            .ask(&[b"DBSIZE"], Reader::number)
            .await
            .unwrap_or(0)
    }

    /// Refuses a cluster that keeps apart what one step has to see.
    pub(super) async fn check_cluster(&self) -> Result<()> {
        let words: &[&[u8]] = &[b"INFO", b"cluster"];
        // Without INFO the first step tells.
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
