//! The sessions daemon: periodic passes of the reaper and of the index until it is asked to stop.

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
use super::progress::{IndexProgress, PageInFlight};
use super::{IndexReport, ReapNotice, ReapReport, ReapSettings, Reaper, SessionSettings, Sessions, WalkNotice};
use crate::daemon::{DaemonEnd, EarlyEnd, Metrics, at_most, wait_for_end};
use crate::text;

/// The names of the loops, in the label `sweep` of their metrics.
const REAP: &str = "adopt_sessions_reap";
const INDEX: &str = "adopt_sessions_index";
/// How long the last page may take when the daemon stops.
pub const LAST_PAGE: Duration = Duration::from_secs(4);

/// Called after each pass of the reaper, with the reason if it ended early. It must return soon.
pub type ReapedListener = Arc<dyn Fn(&ReapReport, Option<EarlyEnd>) + Send + Sync>;

/// The settings of a daemon.
pub struct SessionsDaemon {
    /// The store.
    pub connection: Connection,
    /// The sessions and their index.
    pub settings: SessionSettings,
    /// The reaper. `None`: only passes of the index run.
    pub reaping: Option<ReapSettings>,
    /// The longest time from the start of one pass to the next.
    pub interval: Duration,
    /// The interval of index passes beside a reaper, if they run.
    pub index_every: Option<Duration>,
    /// Whether each reaped or indexed session is logged.
    pub verbose: bool,
    /// Whether a keyspace without sessions is expected, so that it is not warned of.
    pub allow_empty: bool,
    /// The listener for metrics, if they are served.
    pub metrics: Option<TcpListener>,
    /// Called after each pass of the reaper.
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
    /// Validates the settings before anything starts. No I/O.
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

    /// Runs until `stop` completes, or one of its loops panics repeatedly.
    ///
    /// # Errors
    /// Those of [`SessionsDaemon::check`]; `Invalid` for an interval that is too short; `Misconfigured` if this process
    /// already has a metrics recorder.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<DaemonEnd> {
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
            "serving sessions"
        );
        let refs = self.reaping.iter().flat_map(|reaping| &reaping.refs);
        let refs: Vec<String> = refs.map(ToString::to_string).collect();
        let shared = DaemonContext {
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
            had_keys: Arc::new(AtomicBool::new(!self.allow_empty)),
            listener: self.listener,
        };
        let reaper: SharedReaper = Arc::default();
        // Without a reaper, the interval is that of the index.
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
        let ended = wait_for_end(stop, &loops).await;
        shared.end(&reaper, &loops).await;
        Ok(ended)
    }
}

/// The shared state of the loops.
#[derive(Clone)]
struct DaemonContext {
    connection: Connection,
    settings: SessionSettings,
    meters: Meters,
    /// Ends passes after the current step.
    ending: Arc<AtomicBool>,
    /// Drops passes that take too long to end.
    stop: CancellationToken,
    page: PageInFlight,
    verbose: bool,
    refs: Arc<str>,
    warned_of_refs: Arc<Once>,
    never_due: Arc<AtomicU64>,
    had_keys: Arc<AtomicBool>,
    listener: Option<ReapedListener>,
}

impl DaemonContext {
    /// Starts the passes of the reaper.
    fn reap(&self, reaping: ReapSettings, kept: &SharedReaper, interval: Duration, loops: &Loops) -> Result<()> {
        self.meters.begin(meters::REAP, interval);
        let (shared, kept) = (self.clone(), Arc::clone(kept));
        loops.start(LoopSettings::new(REAP, interval), move || ReapLoop {
            shared: shared.clone(),
            reaping: reaping.clone(),
            reaper: Arc::clone(&kept),
            interval,
        })?;
        Ok(())
    }

    /// Starts the passes of the index.
    fn index(&self, every: Duration, loops: &Loops) -> Result<()> {
        self.meters.begin(meters::INDEX, every);
        let shared = self.clone();
        loops.start(LoopSettings::new(INDEX, every), move || IndexLoop {
            shared: shared.clone(),
            every,
        })?;
        Ok(())
    }

    /// Stops the loops after the current step, and reports sessions with unknown outcome.
    async fn end(&self, reaper: &SharedReaper, loops: &Loops) {
        self.ending.store(true, Ordering::Relaxed);
        self.stop.cancel();
        loops.shut_down(LAST_PAGE).await;
        if let Some(reaper) = taken(reaper) {
            let unsure = reaper.close().await;
            if unsure > 0 {
                tracing::warn!(
                    sessions = unsure,
                    "a reply was lost: up to this many sessions may have been reaped without being counted"
                );
                let report = ReapReport {
                    unsure,
                    ..ReapReport::default()
                };
                self.tell(&report, Some(EarlyEnd::Interrupted));
            }
        }
        tracing::info!("stopped");
    }

    fn sessions(&self) -> Result<Sessions> {
        let sessions = Sessions::new(self.connection.clone(), self.settings.clone())?;
        Ok(sessions.with_stop(Arc::clone(&self.ending)))
    }

    /// Runs a pass. `None` if the daemon stops and the pass does not end in time.
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

    /// Reports the reaped sessions of a pass that ended early.
    fn report_early_end(&self, report: &ReapReport, why: EarlyEnd) {
        if report.is_nothing() {
            return;
        }
        tracing::info!(
            sessions = %self.settings.pattern,
            reaped = report.reaped,
            without_session = report.without_session,
            unsure = report.unsure,
            "a pass ended early: {}",
            why.as_str()
        );
        self.tell(report, Some(why));
    }

    fn tell(&self, report: &ReapReport, early: Option<EarlyEnd>) {
        if let Some(listener) = &self.listener {
            listener(report, early);
        }
    }

    fn warn_of_refs(&self) {
        tracing::warn!(
            sessions = %self.settings.pattern,
            refs = %self.refs,
            "no session of a page has a reference count; is --refs right?"
        );
    }

    fn note_never_due(&self, entries: u64) {
        if self.never_due.swap(entries, Ordering::Relaxed) == 0 && entries > 0 {
            tracing::warn!(
                sessions = %self.settings.pattern,
                entries,
                "entries with a time more than a day ahead: their sessions are never reaped; --repair corrects them"
            );
        }
    }

    fn note_keys(&self, keys: u64) {
        if self.had_keys.swap(keys > 0, Ordering::Relaxed) && keys == 0 {
            tracing::warn!(sessions = %self.settings.pattern, "no key matches the pattern; is --pattern right?");
        }
    }
}

/// The reaper between passes, shared by its turns and the daemon's shutdown.
type SharedReaper = Arc<Mutex<Option<Reaper>>>;

fn taken(kept: &SharedReaper) -> Option<Reaper> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// One reaper, created at the first turn and again after a panic.
struct ReapLoop {
    shared: DaemonContext,
    reaping: ReapSettings,
    reaper: SharedReaper,
    interval: Duration,
}

impl ReapLoop {
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
        shared.tell(report, is_ending.then_some(EarlyEnd::Interrupted));
        // The next pass is due right after a quarantine.
        let settles_in = Some(report.settles_in).filter(|settles_in| !settles_in.is_zero());
        Turn {
            skipped: u64::from(report.quarantined.is_some()),
            ..Turn::again_in(settles_in.map_or(next, |settles_in| settles_in.min(next)))
        }
    }
}

#[async_trait]
impl LoopBody for ReapLoop {
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
            self.shared.report_early_end(&report, EarlyEnd::Interrupted);
            return Ok(Turn::idle());
        };
        let unfinished = reaper.unfinished().cloned();
        *self.reaper.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper);
        match done {
            Ok(report) => Ok(self.done(&report, until.since(clock.mono()))),
            Err(error) => {
                self.shared.meters.missed();
                self.shared
                    .report_early_end(&unfinished.unwrap_or_default(), EarlyEnd::Failed);
                Err(error)
            }
        }
    }
}

/// Brings the index up to date.
struct IndexLoop {
    shared: DaemonContext,
    every: Duration,
}

impl IndexLoop {
    fn done(&self, report: &IndexReport) {
        let shared = &self.shared;
        shared.meters.indexed(report);
        shared.note_never_due(report.counts.never_due);
        shared.note_keys(report.counts.scanned);
        tracing::info!(
            sessions = %shared.settings.pattern,
            scanned = report.counts.scanned,
            disconnected = report.counts.disconnected,
            added = report.added,
            updated = report.updated,
            removed = report.removed,
            quiet_passes = report.quiet,
            "index up to date"
        );
    }

    /// Reports the changes of a pass that ended early.
    fn report_early_end(&self, report: &IndexReport, why: EarlyEnd) {
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
            "an index pass ended early: {}",
            why.as_str()
        );
    }
}

#[async_trait]
impl LoopBody for IndexLoop {
    async fn turn(&mut self) -> Result<Turn> {
        let shared = &self.shared;
        let clock = Arc::clone(shared.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.every);
        let (sessions, so_far) = (shared.sessions()?, IndexProgress::default());
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
            Some(Ok(_)) | None => self.report_early_end(&so_far.report(), EarlyEnd::Interrupted),
            Some(Err(error)) => {
                self.report_early_end(&so_far.report(), EarlyEnd::Failed);
                return Err(error);
            }
        }
        Ok(Turn::again_in(until.since(clock.mono())))
    }
}
