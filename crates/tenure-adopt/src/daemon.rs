//! What the daemons of the adoptions share: how one ends, how often a pass begins, and metrics.

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

/// How often the recorder is tidied.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why a pass ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// Its process was asked to stop.
    Interrupted,
    /// The store, or its own work, failed it.
    Failed,
}

impl Early {
    /// One word, for logs and for JSON.
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
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// One of its loops panicked again and again.
    Broken,
}

/// Waits until a daemon is asked to stop, or one of its loops is beyond help.
pub(crate) async fn until_over(stop: impl Future<Output = ()>, loops: &Loops) -> Ended {
    tokio::select! {
        () = stop => Ended::Stopped,
        name = loops.escalated() => {
            tracing::error!(sweep = name, "a loop panics again and again; stopping, to be started afresh");
            Ended::Broken
        }
    }
}

/// The metrics of this process, and where they are served.
pub(crate) struct Metrics {
    listener: TcpListener,
    handle: PrometheusHandle,
}

impl Metrics {
    /// Installs the recorder, if there is a listener. Metrics that are made from then on are in it.
    pub(crate) fn install(
        listener: Option<TcpListener>,
        install: fn() -> Option<PrometheusHandle>,
    ) -> Result<Option<Self>> {
        let Some(listener) = listener else { return Ok(None) };
        let refused = || Error::new(ErrorKind::Misconfigured, "a recorder of metrics is installed already");
        let handle = install().ok_or_else(refused)?;
        Ok(Some(Self { listener, handle }))
    }

    /// Serves them. Who connected before is answered now: with all that was made until now.
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

/// How long from the beginning of one pass to that of the next: never longer than the interval, which is a promise, and
/// not the same in all processes.
pub(crate) fn at_most(clock: &dyn Clock, interval: Duration) -> Duration {
    jitter(clock, interval.mul_f64(0.95), 5)
}
