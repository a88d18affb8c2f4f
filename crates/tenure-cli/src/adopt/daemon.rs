//! `tenure adopt registry --interval`: a pass every so often, until a signal.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusHandle;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::clock::{Clock, SystemClock, jitter};
use tenure_core::error::Result;
use tenure_valkey::Connection;
use tenure_valkey::adopt::{AdoptSettings, Janitor, Notice, PassReport};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::meters::{self, Meters};
use super::tally::{Removed, Tally};
use super::{Early, Registry, scrape, show};
use crate::exit::{DONE, FAILED};
use crate::output::line;

/// The name of its loop, the label `sweep` of the loop's metrics.
const LOOP: &str = "adopt_registry";
/// How often the recorder is tidied.
const UPKEEP: Duration = Duration::from_secs(5);
/// How long a page that is being removed may take at the end.
pub(super) const LAST_PAGE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Registry, settings: AdoptSettings, interval: Duration) -> anyhow::Result<u8> {
    on_runtime(serve(args, settings, interval))
}

/// Runs what goes on until a signal, with logs.
pub(super) fn on_runtime(serve: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    crate::logging::start_quiet("info")?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    // One type for all of them, as in `connect::block_on`.
    let serve: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(serve);
    let done = runtime.block_on(serve);
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

/// The signals that end a daemon.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }

    /// Waits for one, or for a loop that is beyond help; tells the exit code.
    pub(super) async fn until_over(&mut self, loops: &Loops) -> u8 {
        tokio::select! {
            _ = self.term.recv() => DONE,
            _ = self.int.recv() => DONE,
            name = loops.escalated() => {
                tracing::error!(sweep = name, "a loop panics again and again; stopping, to be started afresh");
                FAILED
            }
        }
    }
}

async fn serve(args: &Registry, settings: AdoptSettings, interval: Duration) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let clock = SystemClock::shared();
    let connection = args.connection(Arc::clone(&clock))?;
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let listen = args
        .given
        .metrics_listen
        .map(|address| (address, "adopt.registry.metrics_listen"));
    serve_metrics(listen, args.format.json, meters::install, &loops, &clock).await?;
    let body = Body {
        meters: Meters::new(&args.given.hash, interval, Arc::clone(&clock)),
        stop: CancellationToken::new(),
        tally: Tally::default(),
        hash: args.given.hash.clone(),
        was_there: Arc::new(AtomicBool::new(true)),
        json: args.format.json,
        janitor: Shared::default(),
        connection,
        settings,
        interval,
    };
    let (stop, janitor) = (body.stop.clone(), Arc::clone(&body.janitor));
    let place = body.connection.place().to_owned();
    tracing::info!(
        registry = args.given.hash,
        store = place,
        interval_ms = interval.as_millis(),
        "looking after a registry"
    );
    loops.start(LoopSettings::new(LOOP, interval), move || body.fresh())?;
    let code = signals.until_over(&loops).await;
    stop.cancel();
    loops.shut_down(LAST_PAGE * 2).await;
    if let Some(janitor) = taken(&janitor) {
        let unsure = janitor.close().await;
        if unsure > 0 {
            tracing::warn!(
                entries = unsure,
                "a reply was lost: so many entries may have been removed without being counted"
            );
            let removed = Removed::unsure(unsure);
            tell_part(&args.given.hash, &removed, Early::Interrupted, args.format.json);
        }
    }
    tracing::info!("stopped");
    Ok(code)
}

/// Serves the metrics when asked to, and prints the address that was taken.
pub(super) async fn serve_metrics(
    listen: Option<(SocketAddr, &str)>,
    json: bool,
    install: fn() -> Option<PrometheusHandle>,
    loops: &Loops,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    let Some((address, key)) = listen else {
        return Ok(());
    };
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} ({key})"))?;
    let metrics = install().context("a recorder of metrics is installed already")?;
    let taken = listener.local_addr().context("the listener has no address")?;
    if json {
        // Stdout is for the passes alone.
        tracing::info!(listen = %taken, "serving metrics");
    } else {
        line(format_args!("http://{taken}/metrics"))?;
    }
    let upkeep = metrics.clone();
    loops.start(LoopSettings::new("metrics_upkeep", UPKEEP), move || {
        Upkeep(upkeep.clone())
    })?;
    tokio::spawn(scrape::serve(listener, metrics, Arc::clone(clock)));
    Ok(())
}

struct Upkeep(PrometheusHandle);

#[async_trait]
impl LoopBody for Upkeep {
    async fn turn(&mut self) -> Result<Turn> {
        self.0.run_upkeep();
        Ok(Turn::idle())
    }
}

/// One janitor, made at its first turn and made anew after a panic.
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
    json: bool,
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
            json: self.json,
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
            tell_part(&self.hash, &removed, why, self.json);
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
        if self.json {
            printed(show::pass_line(&self.hash, report));
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

/// How long from the beginning of one pass to that of the next: never longer than the interval, which is a promise, and
/// not the same in all processes.
pub(super) fn at_most(clock: &dyn Clock, interval: Duration) -> Duration {
    jitter(clock, interval.mul_f64(0.95), 5)
}

/// Tells what was removed outside of a pass that was done.
fn tell_part(hash: &str, removed: &Removed, why: Early, json: bool) {
    tracing::info!(
        registry = hash,
        evicted = removed.evicted_total(),
        unsure = removed.unsure,
        "a pass was left before its end: {}",
        why.as_str()
    );
    if json {
        printed(show::part_line(hash, removed, why));
    }
}

/// A daemon goes on when nobody reads what it prints.
pub(super) fn printed(done: anyhow::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(error = format!("{error:#}"), "a pass could not be printed");
    }
}

fn taken(janitor: &Shared) -> Option<Janitor> {
    janitor.lock().unwrap_or_else(PoisonError::into_inner).take()
}
