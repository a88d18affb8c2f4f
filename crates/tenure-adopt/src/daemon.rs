//! Shared parts of the adoption daemons: their end, their interval, and metrics.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusHandle;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::clock::{Clock, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tokio::net::TcpListener;

use crate::scrape;

/// How often the recorder's upkeep runs.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why a pass ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    /// The process was asked to stop.
    Interrupted,
    /// The store or the pass itself failed.
    Failed,
}

impl EarlyEnd {
    /// One word, for logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// How a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonEnd {
    /// It was asked to stop.
    Stopped,
    /// One of its loops panicked repeatedly.
    Broken,
}

/// Waits until the daemon is asked to stop, or one of its loops panics repeatedly.
pub(crate) async fn wait_for_end(stop: impl Future<Output = ()>, loops: &Loops) -> DaemonEnd {
    tokio::select! {
        () = stop => DaemonEnd::Stopped,
        name = loops.escalated() => {
            tracing::error!(sweep = name, "a loop panics repeatedly; stopping for a restart");
            DaemonEnd::Broken
        }
    }
}

/// The metrics recorder of this process and the listener that serves it.
pub(crate) struct Metrics {
    listener: TcpListener,
    handle: PrometheusHandle,
}

impl Metrics {
    /// Installs the recorder, if there is a listener. It records every metric created afterwards.
    pub(crate) fn install(
        listener: Option<TcpListener>,
        install: fn() -> Option<PrometheusHandle>,
    ) -> Result<Option<Self>> {
        let Some(listener) = listener else { return Ok(None) };
        let refused = || Error::new(ErrorKind::Misconfigured, "a metrics recorder is installed already");
        let handle = install().ok_or_else(refused)?;
        Ok(Some(Self { listener, handle }))
    }

    /// Starts to serve the metrics, also to connections that were accepted earlier.
    pub(crate) fn serve(self, loops: &Loops, clock: &Arc<dyn Clock>) -> Result<()> {
        let upkeep = self.handle.clone();
        loops.start(LoopSettings::new("metrics_upkeep", UPKEEP), move || {
            Upkeep(upkeep.clone())
        })?;
        tokio::spawn(scrape::serve(self.listener, self.handle, Arc::clone(clock)));
        Ok(())
    }
}

struct Upkeep(PrometheusHandle);

#[async_trait]
impl LoopBody for Upkeep {
    async fn turn(&mut self) -> Result<Turn> {
        self.0.run_upkeep();
        Ok(Turn::idle())
    }
}

/// The time from the start of one pass to the next: at most the interval, with jitter so that processes do not run in
/// step.
pub(crate) fn at_most(clock: &dyn Clock, interval: Duration) -> Duration {
    jitter(clock, interval.mul_f64(0.95), 5)
}
