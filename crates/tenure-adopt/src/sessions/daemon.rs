//! A daemon that looks after sessions: passes of the reaper and of the index every so often, until it is asked to stop.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::error::Result;
use tenure_valkey::connection::Connection;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::meters::{self, Meters};
use super::so_far::{IndexSoFar, PageInFlight};
use super::{IndexReport, ReapNotice, ReapReport, ReapSettings, Reaper, SessionSettings, Sessions, WalkNotice};
use crate::daemon::{Early, Ended, Metrics, at_most, until_over};
use crate::text;

/// The names of its loops, the label `sweep` of the loops' metrics.
const REAP: &str = "adopt_sessions_reap";
const INDEX: &str = "adopt_sessions_index";
/// How long a page that is being reaped may take at the end.
pub const LAST_PAGE: Duration = Duration::from_secs(4);

/// Hears of each pass of the reaper that is over, and why it ended early if it did. It must return soon.
pub type ReapedListener = Arc<dyn Fn(&ReapReport, Option<Early>) + Send + Sync>;

/// What a daemon looks after, and how.
pub struct SessionsDaemon {
    /// The store.
    pub connection: Connection,
    /// The sessions and their index.
    pub settings: SessionSettings,
    /// What is reaped. `None`: there are only passes of the index.
    pub reaping: Option<ReapSettings>,
    /// The longest time from the beginning of one pass to that of the next.
    pub interval: Duration,
    /// With a reaper: how often the index is brought up to date besides, if it is.
    pub index_every: Option<Duration>,
    /// Whether the log names each session that is reaped or indexed.
    pub verbose: bool,
    /// Where to serve metrics.
    pub metrics: Option<TcpListener>,
    /// Who hears of passes of the reaper.
    pub listener: Option<ReapedListener>,
}

impl std::fmt::Debug for SessionsDaemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionsDaemon")
            .field("settings", &self.settings)
            .field("reaping", &self.reaping)
            .finish_non_exhaustive()
    }
}

impl SessionsDaemon {
    /// Refuses what cannot work, before anything begins. No I/O.
    ///
    /// # Errors
    /// Those of [`Sessions::new`] and [`Reaper::new`].
    pub fn check(&self) -> Result<()> {
        let sessions = Sessions::new(self.connection.clone(), self.settings.clone())?;
        match &self.reaping {
            Some(reaping) => Reaper::new(sessions, reaping.clone()).map(drop),
            None => Ok(()),
        }
    }

    /// Runs until `stop`, or until one of its loops is beyond help.
    ///
    /// # Errors
    /// Those of [`SessionsDaemon::check`]; `Invalid` for an interval that is too short, `Misconfigured` when this process
    /// has a recorder of metrics already.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<Ended> {
        self.check()?;
        let clock = Arc::clone(self.connection.clock());
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let metrics = Metrics::install(self.metrics, meters::install)?;
        tracing::info!(
            sessions = %self.settings.pattern,
            store = self.connection.place(),
            interval_ms = self.interval.as_millis(),
            reap = self.reaping.is_some(),
            index_every_ms = self.index_every.map(|every| every.as_millis()),
            "looking after sessions"
        );
        let refs = self.reaping.iter().flat_map(|reaping| &reaping.refs);
        let refs: Vec<String> = refs.map(ToString::to_string).collect();
        let shared = Shared {
            connection: self.connection,
            meters: Meters::new(&self.settings.pattern.to_string(), Arc::clone(&clock)),
            settings: self.settings,
            ending: Arc::default(),
            stop: CancellationToken::new(),
            page: PageInFlight::default(),
            verbose: self.verbose,
            refs: refs.join(" ").into(),
            warned_of_refs: Arc::new(Once::new()),
            never_due: Arc::default(),
            had_keys: Arc::new(AtomicBool::new(true)),
            listener: self.listener,
        };
        let reaper: Kept = Arc::default();
        // Without a reaper the passes are those of the index.
        let index_every = match self.reaping {
            Some(reaping) => {
                shared.reap(reaping, &reaper, self.interval, &loops)?;
                self.index_every
            }
            None => Some(self.interval),
        };
        if let Some(every) = index_every {
            shared.index(every, &loops)?;
        }
        if let Some(metrics) = metrics {
            metrics.serve(&loops, &clock)?;
        }
        let ended = until_over(stop, &loops).await;
        shared.end(&reaper, &loops).await;
        Ok(ended)
    }
}

/// What the loops share.
#[derive(Clone)]
struct Shared {
    connection: Connection,
    settings: SessionSettings,
    meters: Meters,
    /// Ends passes after the step that is under way.
    ending: Arc<AtomicBool>,
    /// Drops them when that takes too long.
    stop: CancellationToken,
    page: PageInFlight,
    verbose: bool,
    refs: Arc<str>,
    warned_of_refs: Arc<Once>,
    never_due: Arc<AtomicU64>,
    had_keys: Arc<AtomicBool>,
    listener: Option<ReapedListener>,
}

impl Shared {
    /// Begins passes of the reaper.
    fn reap(&self, reaping: ReapSettings, kept: &Kept, interval: Duration, loops: &Loops) -> Result<()> {
        self.meters.begin(meters::REAP, interval);
        let (shared, kept) = (self.clone(), Arc::clone(kept));
        loops.start(LoopSettings::new(REAP, interval), move || ReapBody {
            shared: shared.clone(),
            reaping: reaping.clone(),
            reaper: Arc::clone(&kept),
            interval,
        })?;
        Ok(())
    }

    /// Begins passes of the index.
    fn index(&self, every: Duration, loops: &Loops) -> Result<()> {
        self.meters.begin(meters::INDEX, every);
        let shared = self.clone();
        loops.start(LoopSettings::new(INDEX, every), move || IndexBody {
            shared: shared.clone(),
            every,
        })?;
        Ok(())
    }

    /// Ends the loops after the step that is under way, and tells what nobody could count.
    async fn end(&self, reaper: &Kept, loops: &Loops) {
        self.ending.store(true, Ordering::Relaxed);
        self.stop.cancel();
        loops.shut_down(LAST_PAGE).await;
        if let Some(reaper) = taken(reaper) {
            let unsure = reaper.close().await;
            if unsure > 0 {
                tracing::warn!(
                    sessions = unsure,
                    "a reply was lost: so many sessions may have been reaped without being counted"
                );
                let report = ReapReport {
                    unsure,
                    ..ReapReport::default()
                };
                self.tell(&report, Some(Early::Interrupted));
            }
        }
        tracing::info!("stopped");
    }

    fn sessions(&self) -> Result<Sessions> {
        let sessions = Sessions::new(self.connection.clone(), self.settings.clone())?;
        Ok(sessions.with_stop(Arc::clone(&self.ending)))
    }

    /// Does the work of a pass; `None` when the daemon is stopped and it does not end in time.
    async fn in_time<T>(&self, pass: impl Future<Output = T>) -> Option<T> {
        let too_late = async {
            self.stop.cancelled().await;
            self.connection.clock().sleep(LAST_PAGE / 2).await;
        };
        tokio::select! {
            biased;
            done = pass => Some(done),
            () = too_late => None,
        }
    }

    /// Tells what a pass reaped that did not come to its end.
    fn left(&self, report: &ReapReport, why: Early) {
        if report.is_nothing() {
            return;
        }
        tracing::info!(
            sessions = %self.settings.pattern,
            reaped = report.reaped,
            without_session = report.without_session,
            unsure = report.unsure,
            "a pass was left before its end: {}",
            why.as_str()
        );
        self.tell(report, Some(why));
    }

    fn tell(&self, report: &ReapReport, early: Option<Early>) {
        if let Some(listener) = &self.listener {
            listener(report, early);
        }
    }

    fn warn_of_refs(&self) {
        tracing::warn!(
            sessions = %self.settings.pattern,
            refs = %self.refs,
            "not one session of a page has a key that counts who refers to it; is --refs right?"
        );
    }

    fn note_never_due(&self, entries: u64) {
        if self.never_due.swap(entries, Ordering::Relaxed) == 0 && entries > 0 {
            tracing::warn!(
                sessions = %self.settings.pattern,
                entries,
                "entries whose time is more than a day ahead: their sessions are never reaped; --repair sets them right"
            );
        }
    }

    fn note_keys(&self, keys: u64) {
        if self.had_keys.swap(keys > 0, Ordering::Relaxed) && keys == 0 {
            tracing::warn!(sessions = %self.settings.pattern, "no key is called like this; is --pattern right?");
        }
    }
}

/// The reaper while no pass runs: its own turn takes it, and whoever stops the daemon.
type Kept = Arc<Mutex<Option<Reaper>>>;

fn taken(kept: &Kept) -> Option<Reaper> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// One reaper, made at its first turn and again after a panic.
struct ReapBody {
    shared: Shared,
    reaping: ReapSettings,
    reaper: Kept,
    interval: Duration,
}

impl ReapBody {
    fn make(&self) -> Result<Reaper> {
        let shared = self.shared.clone();
        let sessions = shared.sessions()?;
        let listener = move |notice: &ReapNotice<'_>| {
            shared.page.note(notice);
            shared.meters.note(notice);
            match notice {
                ReapNotice::Reaped(id) if shared.verbose => {
                    tracing::info!(sessions = %shared.settings.pattern, session = text(id), "reaped");
                }
                ReapNotice::Uncounted(_) => shared.warned_of_refs.call_once(|| shared.warn_of_refs()),
                _ => {}
            }
        };
        Ok(Reaper::new(sessions, self.reaping.clone())?.with_listener(Box::new(listener)))
    }

    fn done(&self, report: &ReapReport, next: Duration) -> Turn {
        let shared = &self.shared;
        shared.meters.reaped(report);
        shared.note_never_due(report.never_due);
        tracing::info!(
            sessions = %shared.settings.pattern,
            pass = report.pass,
            looked = report.looked,
            reaped = report.reaped,
            without_session = report.without_session,
            referenced = report.referenced,
            quarantined = report.quarantined.is_some(),
            "pass done"
        );
        let is_ending = shared.ending.load(Ordering::Relaxed);
        shared.tell(report, is_ending.then_some(Early::Interrupted));
        // Right after a quarantine everyone has had their time.
        let settles_in = Some(report.settles_in).filter(|settles_in| !settles_in.is_zero());
        Turn {
            skipped: u64::from(report.quarantined.is_some()),
            ..Turn::again_in(settles_in.map_or(next, |settles_in| settles_in.min(next)))
        }
    }
}

#[async_trait]
impl LoopBody for ReapBody {
    async fn turn(&mut self) -> Result<Turn> {
        let mut reaper = match taken(&self.reaper) {
            Some(reaper) => reaper,
            None => self.make()?,
        };
        let clock = Arc::clone(self.shared.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.interval);
        self.shared.page.begin();
        let Some(done) = self.shared.in_time(reaper.pass()).await else {
            let report = self.shared.page.dropped(reaper).await;
            self.shared.left(&report, Early::Interrupted);
            return Ok(Turn::idle());
        };
        let unfinished = reaper.unfinished().cloned();
        *self.reaper.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper);
        match done {
            Ok(report) => Ok(self.done(&report, until.since(clock.mono()))),
            Err(error) => {
                self.shared.meters.missed();
                self.shared.left(&unfinished.unwrap_or_default(), Early::Failed);
                Err(error)
            }
        }
    }
}

/// Brings the index up to date.
struct IndexBody {
    shared: Shared,
    every: Duration,
}

impl IndexBody {
    fn done(&self, report: &IndexReport) {
        let shared = &self.shared;
        shared.meters.indexed(report);
        shared.note_never_due(report.standing.never_due);
        shared.note_keys(report.standing.scanned);
        tracing::info!(
            sessions = %shared.settings.pattern,
            scanned = report.standing.scanned,
            disconnected = report.standing.disconnected,
            added = report.added,
            updated = report.updated,
            removed = report.removed,
            quiet_passes = report.quiet,
            "index up to date"
        );
    }

    /// Tells what a pass changed that did not come to its end.
    fn left(&self, report: &IndexReport, why: Early) {
        if report.is_nothing() {
            return;
        }
        self.shared.meters.changed(report);
        tracing::info!(
            sessions = %self.shared.settings.pattern,
            added = report.added,
            updated = report.updated,
            removed = report.removed,
            unsure = report.unsure,
            "a pass of the index was left before its end: {}",
            why.as_str()
        );
    }
}

#[async_trait]
impl LoopBody for IndexBody {
    async fn turn(&mut self) -> Result<Turn> {
        let shared = &self.shared;
        let clock = Arc::clone(shared.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.every);
        let (sessions, so_far) = (shared.sessions()?, IndexSoFar::default());
        let listener = |notice: &WalkNotice<'_>| {
            so_far.note(notice);
            if let WalkNotice::Difference(difference) = notice
                && shared.verbose
            {
                tracing::info!(sessions = %shared.settings.pattern, "{difference}");
            }
        };
        match shared.in_time(sessions.index(&listener)).await {
            Some(Ok(report)) if !report.stopped => self.done(&report),
            Some(Ok(_)) | None => self.left(&so_far.report(), Early::Interrupted),
            Some(Err(error)) => {
                self.left(&so_far.report(), Early::Failed);
                return Err(error);
            }
        }
        Ok(Turn::again_in(until.since(clock.mono())))
    }
}
