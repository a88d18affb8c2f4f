//! `tenure adopt sessions --interval`: a pass every so often, until a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::clock::SystemClock;
use tenure_core::error::Result;
use tenure_valkey::Connection;
use tenure_valkey::adopt::{ReapNotice, ReapReport, ReapSettings, Reaper, SessionSettings, Sessions};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::meters::{self, Meters};
use super::{Work, show};
use crate::adopt::daemon::{Signals, at_most, on_runtime, serve_metrics};

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
        printed: work.json.then(|| Arc::new(work.printing())),
    };
    let reaper: Kept = Arc::default();
    // Without --reap the passes are those of the index.
    let index_every = match &work.reaping {
        Some(reaping) => {
            let (shared, reaping, kept) = (shared.clone(), reaping.clone(), Arc::clone(&reaper));
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
    /// Ends a pass of the reaper after the page that is being reaped.
    ending: Arc<AtomicBool>,
    /// Ends a pass of the index at once: it may be broken off anywhere.
    stop: CancellationToken,
    printed: Option<Arc<Work>>,
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
        let shared = &self.shared;
        let sessions = Sessions::new(shared.connection.clone(), shared.settings.clone())?;
        let meters = shared.meters.clone();
        let listener = move |notice: &ReapNotice<'_>| meters.note(notice);
        Ok(Reaper::new(sessions, self.reaping.clone())?
            .with_listener(Box::new(listener))
            .with_stop(Arc::clone(&shared.ending)))
    }

    fn done(&self, report: &ReapReport, next: Duration) -> Turn {
        self.shared.meters.reaped(report);
        tracing::info!(
            sessions = %self.shared.settings.pattern,
            pass = report.pass,
            looked = report.looked,
            reaped = report.reaped,
            without_session = report.without_session,
            referenced = report.referenced,
            quarantined = report.quarantined.is_some(),
            "pass done"
        );
        if let Some(work) = &self.shared.printed
            && let Err(error) = show::reap_line(work, report)
        {
            tracing::warn!(error = format!("{error:#}"), "a pass could not be printed");
        }
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
        let report = reaper.pass().await;
        *self.reaper.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper);
        match report {
            Ok(report) => Ok(self.done(&report, until.since(clock.mono()))),
            Err(error) => {
                self.shared.meters.missed();
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

#[async_trait]
impl LoopBody for IndexBody {
    async fn turn(&mut self) -> Result<Turn> {
        let shared = &self.shared;
        let clock = Arc::clone(shared.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.every);
        let sessions = Sessions::new(shared.connection.clone(), shared.settings.clone())?;
        let report = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Ok(Turn::idle()),
            report = sessions.index(&|_| {}) => report?,
        };
        shared.meters.indexed(&report);
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
        Ok(Turn::again_in(until.since(clock.mono())))
    }
}
