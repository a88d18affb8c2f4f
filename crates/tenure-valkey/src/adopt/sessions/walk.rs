//! Walking over all sessions and all entries: to bring the index up to date, or to compare.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::time::StoreTime;

use super::report::{Comparison, Difference, IndexReport, Kind};
use super::step::{Mode, Seen};
use super::{PAGE, Sessions, check_slots};
use crate::adopt::health::Info;

/// How often a walk may begin anew before it gives up.
const RESTARTS: u64 = 3;
/// How long it waits for a store that is out of reach.
const OUTAGE: Duration = Duration::from_secs(30);
/// How often it looks whether the store is back.
const BACKOFF: Duration = Duration::from_millis(500);
/// The most differences that are listed.
const LISTED: usize = 1_000;
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
    /// An entry is wrong, or was.
    Difference(&'a Difference),
    /// The store was away: the walk begins anew.
    Restarted(&'a Error),
}

/// Hears what a walk does, while it does it. It must return soon.
pub type WalkListener<'a> = &'a (dyn Fn(&WalkNotice<'_>) + Send + Sync);

/// What one walk is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Bring the index up to date, or tell what that would do.
    Index(Mode),
    /// Compare everything.
    Compare,
}

impl Purpose {
    fn mode(self) -> Mode {
        match self {
            Self::Index(mode) => mode,
            Self::Compare => Mode::Look,
        }
    }
}

/// What a walk has seen so far.
#[derive(Default)]
struct Tally {
    report: IndexReport,
    found: Comparison,
    seen: HashSet<u64>,
}

impl Sessions {
    /// Brings the index up to date in one pass over the keyspace: adds what is missing, and mends what is ours. O(keys of
    /// the database), throttled. May be repeated and broken off at any time.
    ///
    /// # Errors
    /// `Unavailable` when the store was out of reach for too long, `Denied`, `Misconfigured`. What was added stays.
    pub async fn index(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        let mut report = self.walk(Purpose::Index(Mode::Write), None, listener).await?.report;
        report.quiet = self.steps.passed(report.changed()).await?;
        Ok(report)
    }

    /// Tells what [`Sessions::index`] would do now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::index`].
    pub async fn preview(&self, listener: WalkListener<'_>) -> Result<IndexReport> {
        Ok(self.walk(Purpose::Index(Mode::Look), None, listener).await?.report)
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
            let kept = if purpose == Purpose::Index(Mode::Write) {
                before
            } else {
                IndexReport::default()
            };
            tally.report.restarts = before.restarts + 1;
            (tally.report.added, tally.report.updated, tally.report.removed) = (kept.added, kept.updated, kept.removed);
        }
    }

    async fn attempt(
        &self,
        purpose: Purpose,
        since: Option<StoreTime>,
        tally: &mut Tally,
        listener: WalkListener<'_>,
    ) -> Result<()> {
        let (steps, life) = (&self.steps, self.steps.connection.life());
        let same_server = || {
            if life.is_some() && steps.connection.life() == life {
                return Ok(());
            }
            let message = "the connection to the store was made anew during a scan, which is incomplete therefore";
            Err(Error::unavailable(message, Outcome::Unchanged))
        };
        tally.report.began = steps.connection.time().await?;
        let total = self.database_size().await?;
        let (mut cursor, mut looked) = ("0".to_owned(), 0);
        loop {
            let (next, keys) = steps.scan(&cursor).await?;
            same_server()?;
            looked += steps.settings.page().max(keys.len() as u64);
            let ids: Vec<Vec<u8>> = keys.iter().filter_map(|key| self.fresh_id(key, tally)).collect();
            for some in ids.chunks(PAGE) {
                let seen = steps.index(purpose.mode(), some).await?;
                for (id, seen) in some.iter().zip(seen) {
                    tally.scanned(purpose, since, self, id, seen, listener);
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = if next == "0" {
                1.0
            } else {
                (looked as f64 / total.max(1) as f64).min(0.99)
            };
            listener(&WalkNotice::Page {
                scanned: tally.report.standing.scanned,
                changed: tally.report.changed(),
                share,
            });
            if next == "0" {
                break;
            }
            cursor = next;
            steps.rest(steps.settings.page().max(keys.len() as u64)).await;
        }
        self.entries(purpose, tally, listener, &same_server).await?;
        tally.report.standing.entries = steps.count().await?;
        Ok(())
    }

    /// The other way round: every entry whose session is not disconnected. To bring the index up to date only ours.
    async fn entries(
        &self,
        purpose: Purpose,
        tally: &mut Tally,
        listener: WalkListener<'_>,
        same_server: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<()> {
        let steps = &self.steps;
        let key = match purpose {
            Purpose::Index(_) => &steps.keys.added,
            Purpose::Compare => &steps.keys.index,
        };
        let (mut cursor, mut met) = ("0".to_owned(), HashSet::new());
        loop {
            let (next, mut ids) = steps.entries(key, &cursor).await?;
            same_server()?;
            let count = ids.len() as u64;
            ids.retain(|id| met.len() >= REMEMBERED || met.insert(fingerprint(id)));
            for some in ids.chunks(PAGE) {
                let seen = steps.index(purpose.mode(), some).await?;
                for (id, seen) in some.iter().zip(seen) {
                    tally.entry(purpose, id, seen, listener);
                }
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
            steps.rest(steps.settings.page().max(count)).await;
        }
    }

    /// The id in a key that was not met before.
    fn fresh_id(&self, key: &[u8], tally: &mut Tally) -> Option<Vec<u8>> {
        let id = self.steps.settings.pattern.name(key).filter(|id| !id.is_empty())?;
        let is_new = tally.seen.len() >= REMEMBERED || tally.seen.insert(fingerprint(id));
        is_new.then(|| id.to_vec())
    }

    async fn database_size(&self) -> Result<u64> {
        // It is only for the progress: a server that does not tell is none the worse.
        let size = self.steps.connection.command(redis::cmd("DBSIZE")).await;
        Ok(match size {
            Ok(redis::Value::Int(keys)) => u64::try_from(keys).unwrap_or(0),
            _ => 0,
        })
    }

    /// Refuses a cluster that keeps apart what one step has to see.
    pub(super) async fn check_cluster(&self) -> Result<()> {
        let mut cmd = redis::cmd("INFO");
        cmd.arg("cluster");
        let info = match self.steps.connection.command(cmd).await {
            Ok(redis::Value::BulkString(info)) => info,
            Ok(redis::Value::VerbatimString { text, .. }) => text.into_bytes(),
            // Without INFO the first step tells.
            _ => return Ok(()),
        };
        if Info::parse(&String::from_utf8_lossy(&info)).cluster {
            check_slots(&self.steps.keys, &self.steps.settings, &[])?;
        }
        Ok(())
    }
}

impl Tally {
    /// Counts a key that a scan showed.
    fn scanned(
        &mut self,
        purpose: Purpose,
        since: Option<StoreTime>,
        sessions: &Sessions,
        id: &[u8],
        seen: Seen,
        listener: WalkListener<'_>,
    ) {
        let standing = &mut self.report.standing;
        standing.scanned += 1;
        match seen.mark {
            b'a' | b'k' | b'u' | b'o' => standing.disconnected += 1,
            b'n' => standing.not_hash += 1,
            b'i' => standing.invalid += 1,
            b'g' => standing.scanned -= 1,
            // An entry without a disconnected session: mostly an active one.
            _ => standing.active += 1,
        }
        match seen.mark {
            b'a' if since.is_some_and(|since| is_since(&seen.session, since, sessions)) => self.found.fresh += 1,
            b'a' => {
                self.report.added += 1;
                self.found.missing += 1;
                self.differ(id, Kind::Missing, true, seen, listener);
            }
            b'u' | b'o' => {
                let ours = seen.mark == b'u';
                self.report.updated += u64::from(ours);
                self.found.differing += 1;
                self.differ(id, Kind::Differing, ours, seen, listener);
            }
            // A look counts them when it comes to the entries.
            b'r' if purpose.mode() == Mode::Write => {
                self.report.removed += 1;
                self.differ(id, Kind::Extra, true, seen, listener);
            }
            _ => {}
        }
    }

    /// Counts an entry that has no disconnected session.
    fn entry(&mut self, purpose: Purpose, id: &[u8], seen: Seen, listener: WalkListener<'_>) {
        let ours = seen.mark == b'r';
        if ours {
            self.report.removed += 1;
        }
        if ours || (seen.mark == b'!' && purpose == Purpose::Compare) {
            self.found.extra += 1;
            self.differ(id, Kind::Extra, ours, seen, listener);
        }
    }

    fn differ(&mut self, id: &[u8], kind: Kind, ours: bool, seen: Seen, listener: WalkListener<'_>) {
        let difference = Difference {
            id: id.to_vec(),
            kind,
            session: seen.session,
            index: seen.index,
            ours,
        };
        listener(&WalkNotice::Difference(&difference));
        if self.found.listed.len() < LISTED {
            self.found.listed.push(difference);
        }
    }
}

/// Whether a time as a session tells it is not before another, as exactly as whole units can tell.
fn is_since(session: &[u8], since: StoreTime, sessions: &Sessions) -> bool {
    let unit = sessions.steps.settings.unit.micros();
    let whole = session.split(|byte| *byte == b'.').next().unwrap_or_default();
    let told = std::str::from_utf8(whole)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    told.is_some_and(|told| told >= since.micros() / unit)
}

fn fingerprint(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
