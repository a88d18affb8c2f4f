//! `tenure adopt sessions --interval`: a pass every so often, until a signal.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::clock::SystemClock;
use tenure_core::error::Result;
use tenure_valkey::Connection;
use tenure_valkey::adopt::{
    IndexReport, ReapNotice, ReapReport, ReapSettings, Reaper, SessionSettings, Sessions, WalkNotice, text,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::meters::{self, Meters};
use super::so_far::{IndexSoFar, PageInFlight, is_nothing};
use super::{Work, progress, show};
use crate::adopt::Early;
use crate::adopt::daemon::{Signals, at_most, on_runtime, printed, serve_metrics};

/// The names of its loops, the label `sweep` of the loops' metrics.
const REAP: &str = "adopt_sessions_reap";
const INDEX: &str = "adopt_sessions_index";
/// How long a page that is being reaped may take at the end.
pub(super) const LAST_PAGE: Duration = Duration::from_secs(4);

pub(super) fn run(work: &Work, interval: Duration) -> anyhow::Result<u8> {
    on_runtime(serve(work, interval))
}

async fn serve(work: &Work, interval: Duration) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let clock = SystemClock::shared();
    let connection = work.connection(Arc::clone(&clock))?;
    // What cannot work is refused before anything begins.
    let sessions = Sessions::new(connection.clone(), work.settings.clone())?;
    if let Some(reaping) = &work.reaping {
        Reaper::new(sessions, reaping.clone())?;
    }
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let listen = work.given.metrics_listen;
    let listen = listen.map(|address| (address, "adopt.sessions.metrics_listen"));
    serve_metrics(listen, work.json, meters::install, &loops, &clock).await?;
    tracing::info!(
        sessions = work.given.pattern,
        store = connection.place(),
        interval_ms = interval.as_millis(),
        reap = work.reaping.is_some(),
        index_every_ms = work.given.index_every.map(|every| every.as_millis()),
        "looking after sessions"
    );
    let shared = Shared {
        connection,
        settings: work.settings.clone(),
        meters: Meters::new(&work.given.pattern, clock),
        ending: Arc::default(),
        stop: CancellationToken::new(),
        page: PageInFlight::default(),
        verbose: work.verbose,
        refs: work.given.refs.as_deref().unwrap_or_default().into(),
        warned_of_refs: Arc::new(Once::new()),
        never_due: Arc::default(),
        had_keys: Arc::new(AtomicBool::new(true)),
        printed: work.json.then(|| Arc::new(work.printing())),
    };
    let reaper: Kept = Arc::default();
    // Without --reap the passes are those of the index.
    let index_every = match &work.reaping {
        Some(reaping) => {
            let (shared, reaping, kept) = (shared.clone(), reaping.clone(), Arc::clone(&reaper));
            shared.meters.begin(meters::REAP, interval);
            loops.start(LoopSettings::new(REAP, interval), move || ReapBody {
                shared: shared.clone(),
                reaping: reaping.clone(),
                reaper: Arc::clone(&kept),
                interval,
            })?;
            work.given.index_every
        }
        None => Some(interval),
    };
    if let Some(every) = index_every {
        let shared = shared.clone();
        shared.meters.begin(meters::INDEX, every);
        loops.start(LoopSettings::new(INDEX, every), move || IndexBody {
            shared: shared.clone(),
            every,
        })?;
    }
    let code = signals.until_over(&loops).await;
    shared.ending.store(true, Ordering::Relaxed);
    shared.stop.cancel();
    loops.shut_down(LAST_PAGE).await;
    if let Some(reaper) = taken(&reaper) {
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
            shared.print(&report, Some(Early::Interrupted));
        }
    }
    tracing::info!("stopped");
    Ok(code)
}

impl Work {
    /// A copy for the loop that prints.
    fn printing(&self) -> Self {
        Self {
            given: self.given.clone(),
            settings: self.settings.clone(),
            reaping: self.reaping.clone(),
            ..*self
        }
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
    printed: Option<Arc<Work>>,
}

impl Shared {
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
        if is_nothing(report) {
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
        self.print(report, Some(why));
    }

    fn print(&self, report: &ReapReport, early: Option<Early>) {
        if let Some(work) = &self.printed {
            printed(show::reap_line(work, report, early));
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

/// One reaper, made at its first turn and made anew after a panic.
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
        shared.print(report, is_ending.then_some(Early::Interrupted));
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
                tracing::info!(sessions = %shared.settings.pattern, "{}", progress::told(difference));
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
