//! The registry daemon: periodic passes until it is asked to stop.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::error::Result;
use tenure_valkey::connection::Connection;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::meters::{self, Meters};
use super::tally::{Removed, Tally};
use super::{AdoptSettings, Janitor, Notice, PassReport};
use crate::daemon::{DaemonEnd, EarlyEnd, Metrics, at_most, wait_for_end};

/// The name of the loop, in the label `sweep` of its metrics.
const LOOP: &str = "adopt_registry";
/// How long the last page may take when the daemon stops.
pub const LAST_PAGE: Duration = Duration::from_secs(2);

/// How a pass of the daemon ended.
#[derive(Debug)]
pub enum PassEnd<'a> {
    /// The pass was completed.
    Done(&'a PassReport),
    /// The pass ended early but removed entries.
    Early(&'a Removed, EarlyEnd),
}

/// Called after each pass. It must return soon.
pub type PassListener = Arc<dyn Fn(PassEnd<'_>) + Send + Sync>;

/// The settings of a daemon.
pub struct RegistryDaemon {
    /// The store.
    pub connection: Connection,
    /// The registry.
    pub settings: AdoptSettings,
    /// The longest time from the start of one pass to the next.
    pub interval: Duration,
    /// Whether an empty hash is expected, so that it is not warned of.
    pub allow_empty: bool,
    /// The listener for metrics, if they are served.
    pub metrics: Option<TcpListener>,
    /// Called after each pass.
    pub listener: Option<PassListener>,
}

impl RegistryDaemon {
    /// Runs until `stop` completes, or its loop panics repeatedly.
    ///
    /// # Errors
    /// `Invalid` for an interval that is too short; `Misconfigured` if this process already has a metrics recorder.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<DaemonEnd> {
        let hash = String::from_utf8_lossy(&self.settings.hash).into_owned();
        let clock = Arc::clone(self.connection.clock());
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let metrics = Metrics::install(self.metrics, meters::install)?;
        let (place, interval) = (self.connection.place().to_owned(), self.interval);
        let body = RegistryLoop {
            meters: Meters::new(&hash, interval, Arc::clone(&clock)),
            stop: CancellationToken::new(),
            tally: Tally::default(),
            hash,
            was_there: Arc::new(AtomicBool::new(!self.allow_empty)),
            listener: self.listener,
            janitor: SharedJanitor::default(),
            connection: self.connection,
            settings: self.settings,
            interval,
        };
        tracing::info!(
            registry = body.hash,
            store = place,
            interval_ms = interval.as_millis(),
            "serving a registry"
        );
        if let Some(metrics) = metrics {
            metrics.serve(&loops, &clock)?;
        }
        let turns = body.fresh();
        loops.start(LoopSettings::new(LOOP, interval), move || turns.fresh())?;
        let ended = wait_for_end(stop, &loops).await;
        body.stop.cancel();
        loops.shut_down(LAST_PAGE * 2).await;
        if let Some(janitor) = taken(&body.janitor) {
            let unsure = janitor.close().await;
            if unsure > 0 {
                tracing::warn!(
                    entries = unsure,
                    "a reply was lost: up to this many entries may have been removed without being counted"
                );
                body.report_removed(&Removed::unsure(unsure), EarlyEnd::Interrupted);
            }
        }
        tracing::info!("stopped");
        Ok(ended)
    }
}

impl std::fmt::Debug for RegistryDaemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryDaemon")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// One janitor, created at the first turn and again after a panic.
struct RegistryLoop {
    connection: Connection,
    settings: AdoptSettings,
    interval: Duration,
    meters: Meters,
    stop: CancellationToken,
    /// The removals of the current pass.
    tally: Tally,
    hash: String,
    /// Whether the hash existed in the last pass.
    was_there: Arc<AtomicBool>,
    listener: Option<PassListener>,
    janitor: SharedJanitor,
}

/// The janitor between passes, shared by its turns and the daemon's shutdown.
type SharedJanitor = Arc<Mutex<Option<Janitor>>>;

impl RegistryLoop {
    fn fresh(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            settings: self.settings.clone(),
            interval: self.interval,
            meters: self.meters.clone(),
            stop: self.stop.clone(),
            tally: self.tally.clone(),
            hash: self.hash.clone(),
            was_there: Arc::clone(&self.was_there),
            listener: self.listener.clone(),
            janitor: Arc::clone(&self.janitor),
        }
    }

    fn make(&self) -> Janitor {
        let (meters, tally) = (self.meters.clone(), self.tally.clone());
        let listener = move |notice: &Notice<'_>| {
            tally.note(notice);
            meters.note(notice);
        };
        Janitor::new(self.connection.clone(), self.settings.clone()).with_listener(Box::new(listener))
    }

    /// Reports the removals of a pass that ended early. The log already names each owner.
    fn report_early_end(&self, why: EarlyEnd, pending: u64) {
        let removed = self.tally.removed(why, pending);
        if !removed.is_nothing() {
            self.report_removed(&removed, why);
        }
    }

    /// Reports removals outside a completed pass.
    fn report_removed(&self, removed: &Removed, why: EarlyEnd) {
        tracing::info!(
            registry = self.hash,
            evicted = removed.evicted_total(),
            unsure = removed.unsure,
            "a pass ended early: {}",
            why.as_str()
        );
        if let Some(listener) = &self.listener {
            listener(PassEnd::Early(removed, why));
        }
    }

    fn done(&self, report: &PassReport, next: Duration) -> Turn {
        self.meters.passed(report);
        let is_there = report.scanned > 0;
        if report.quarantined.is_none() && self.was_there.swap(is_there, Ordering::Relaxed) && !is_there {
            tracing::warn!(
                registry = self.hash,
                "the hash does not exist or is empty; is --hash right?"
            );
        }
        tracing::info!(
            registry = self.hash,
            pass = report.pass,
            owners = report.owners,
            dead = report.dead.len(),
            evicted = report.evicted_total(),
            braked = report.braked.is_some(),
            quarantined = report.quarantined.is_some(),
            "pass done"
        );
        if let Some(listener) = &self.listener {
            listener(PassEnd::Done(report));
        }
        Turn {
            skipped: u64::from(report.quarantined.is_some()),
            ..Turn::again_in(next)
        }
    }
}

#[async_trait]
impl LoopBody for RegistryLoop {
    async fn turn(&mut self) -> Result<Turn> {
        let mut janitor = taken(&self.janitor).unwrap_or_else(|| self.make());
        let clock = Arc::clone(self.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.interval);
        self.tally.begin();
        let stopped = async {
            self.stop.cancelled().await;
            self.tally.page_finished(&clock, LAST_PAGE).await;
        };
        let done = tokio::select! {
            biased;
            done = janitor.pass_until(until) => done,
            () = stopped => {
                self.report_early_end(EarlyEnd::Interrupted, janitor.close().await);
                return Ok(Turn::idle());
            }
        };
        *self.janitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(janitor);
        match done {
            Ok(report) => Ok(self.done(&report, until.since(clock.mono()))),
            Err(error) => {
                // The next pass reports the outcome of a page without a reply.
                self.report_early_end(EarlyEnd::Failed, 0);
                Err(error)
            }
        }
    }
}

fn taken(janitor: &SharedJanitor) -> Option<Janitor> {
    janitor.lock().unwrap_or_else(PoisonError::into_inner).take()
}
