//! Signals, runtime and metrics listener of the commands that run until a signal.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context;
use tenure_adopt::DaemonEnd;
use tenure_supervise::signals::Signals;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::exit::{DONE, FAILED};
use crate::output::line;

/// Runs a daemon until a signal, with logs that never block it.
pub(super) fn on_runtime(serve: impl Future<Output = anyhow::Result<DaemonEnd>>) -> anyhow::Result<u8> {
    crate::logging::start_supervisor("info")?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    // One type for all of them, as in `connect::block_on`.
    let serve: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(serve);
    let done = runtime.block_on(serve);
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(match done? {
        DaemonEnd::Stopped => DONE,
        DaemonEnd::Broken => FAILED,
    })
}

/// Listens to the signals that end a run.
pub(super) fn signals() -> anyhow::Result<Signals> {
    Signals::listen().context("cannot listen to signals")
}

/// Opens the listener for metrics if one is configured, and prints its address.
pub(super) async fn metrics_listener(
    listen: Option<(SocketAddr, &str)>,
    json: bool,
) -> anyhow::Result<Option<TcpListener>> {
    let Some((address, key)) = listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} ({key})"))?;
    let taken = listener.local_addr().context("the listener has no address")?;
    if json {
        // Stdout is for the passes alone.
        tracing::info!(listen = %taken, "serving metrics");
    } else {
        line(format_args!("http://{taken}/metrics"))?;
    }
    Ok(Some(listener))
}

/// A daemon ignores that its output cannot be written.
pub(super) fn printed(done: anyhow::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(error = format!("{error:#}"), "a pass could not be printed");
    }
}
