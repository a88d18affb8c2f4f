//! A daemon that looks after a registry: a pass every so often, until it is asked to stop.

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
use crate::daemon::{Early, Ended, Metrics, at_most, until_over};

/// The name of its loop, the label `sweep` of the loop's metrics.
const LOOP: &str = "adopt_registry";
/// How long a page that is being removed may take at the end.
pub const LAST_PAGE: Duration = Duration::from_secs(2);

/// How a pass of the daemon went.
#[derive(Debug)]
pub enum PassEnd<'a> {
    /// It came to its end.
    Done(&'a PassReport),
    /// It removed something, and did not.
    Early(&'a Removed, Early),
}

/// Hears of each pass that is over. It must return soon.
pub type PassListener = Arc<dyn Fn(PassEnd<'_>) + Send + Sync>;

/// What a daemon looks after, and how.
pub struct RegistryDaemon {
    /// The store.
    pub connection: Connection,
    /// The registry.
    pub settings: AdoptSettings,
    /// The longest time from the beginning of one pass to that of the next.
    pub interval: Duration,
    /// Where to serve metrics.
    pub metrics: Option<TcpListener>,
    /// Who hears of passes.
    pub listener: Option<PassListener>,
}

impl RegistryDaemon {
    /// Runs until `stop`, or until its loop is beyond help.
    ///
    /// # Errors
    /// `Invalid` for an interval that is too short, `Misconfigured` when this process has a recorder of metrics already.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<Ended> {
        let hash = String::from_utf8_lossy(&self.settings.hash).into_owned();
        let clock = Arc::clone(self.connection.clock());
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let metrics = Metrics::install(self.metrics, meters::install)?;
        let (place, interval) = (self.connection.place().to_owned(), self.interval);
        let body = Body {
            meters: Meters::new(&hash, interval, Arc::clone(&clock)),
            stop: CancellationToken::new(),
            tally: Tally::default(),
            hash,
            was_there: Arc::new(AtomicBool::new(true)),
            listener: self.listener,
            janitor: Shared::default(),
            connection: self.connection,
            settings: self.settings,
            interval,
        };
        tracing::info!(
            registry = body.hash,
            store = place,
            interval_ms = interval.as_millis(),
            "looking after a registry"
        );
        if let Some(metrics) = metrics {
            metrics.serve(&loops, &clock)?;
        }
        let turns = body.fresh();
        loops.start(LoopSettings::new(LOOP, interval), move || turns.fresh())?;
        let ended = until_over(stop, &loops).await;
        body.stop.cancel();
        loops.shut_down(LAST_PAGE * 2).await;
        if let Some(janitor) = taken(&body.janitor) {
            let unsure = janitor.close().await;
            if unsure > 0 {
                tracing::warn!(
                    entries = unsure,
                    "a reply was lost: so many entries may have been removed without being counted"
                );
                body.tell_part(&Removed::unsure(unsure), Early::Interrupted);
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

/// One janitor, made at its first turn and again after a panic.
struct Body {
    connection: Connection,
    settings: AdoptSettings,
    interval: Duration,
    meters: Meters,
    stop: CancellationToken,
    /// What the pass has removed so far.
    tally: Tally,
    hash: String,
    /// Whether the hash was there at the last pass.
    was_there: Arc<AtomicBool>,
    listener: Option<PassListener>,
    janitor: Shared,
}

/// The janitor while no pass runs: its own turn takes it, and whoever stops the daemon.
type Shared = Arc<Mutex<Option<Janitor>>>;

impl Body {
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

    /// Tells what a pass removed that did not come to its end. The log names each owner already.
    fn left(&self, why: Early, pending: u64) {
        let removed = self.tally.removed(why, pending);
        if !removed.is_nothing() {
            self.tell_part(&removed, why);
        }
    }

    /// Tells what was removed outside of a pass that was done.
    fn tell_part(&self, removed: &Removed, why: Early) {
        tracing::info!(
            registry = self.hash,
            evicted = removed.evicted_total(),
            unsure = removed.unsure,
            "a pass was left before its end: {}",
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
                "the hash is missing or empty, which is the same; is --hash right?"
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
impl LoopBody for Body {
    async fn turn(&mut self) -> Result<Turn> {
        let mut janitor = taken(&self.janitor).unwrap_or_else(|| self.make());
        let clock = Arc::clone(self.connection.clock());
        let until = clock.mono() + at_most(&*clock, self.interval);
        self.tally.begin();
        let stopped = async {
            self.stop.cancelled().await;
            self.tally.at_rest(&clock, LAST_PAGE).await;
        };
        let done = tokio::select! {
            biased;
            done = janitor.pass_until(until) => done,
            () = stopped => {
                self.left(Early::Interrupted, janitor.close().await);
                return Ok(Turn::idle());
            }
        };
        *self.janitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(janitor);
        match done {
            Ok(report) => Ok(self.done(&report, until.since(clock.mono()))),
            Err(error) => {
                // What became of a page without a reply is in the report of the next pass.
                self.left(Early::Failed, 0);
                Err(error)
            }
        }
    }
}

fn taken(janitor: &Shared) -> Option<Janitor> {
    janitor.lock().unwrap_or_else(PoisonError::into_inner).take()
}
