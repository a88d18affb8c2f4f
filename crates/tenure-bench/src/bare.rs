//! A bare handler of the web framework that the daemon uses, as a separate process: the same requests and the same bytes
//! in the answer, without Tenure behind them. What it costs, no daemon on this framework can save.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::put;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, http};

const START: Duration = Duration::from_secs(10);
/// As the daemon answers a beat of a member that holds nothing.
const ANSWER: &str = r#"{"expires_in_ms":120000}"#;

/// The process; dropping it kills it.
pub struct Bare {
    port: Port,
    process: Process,
}

impl Bare {
    /// Starts this program again, as the handler.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start() -> Result<Self> {
        tokio::task::spawn_blocking(|| {
            let (port, program) = (Port::reserve(), std::env::current_exe()?);
            let addr = port.addr();
            let process = Process::spawn("bare", |_| {
                let mut command = Command::new(&program);
                command.arg("--bare").arg(addr.to_string());
                command
            })?;
            // Any answer will do: it has no other route.
            process.wait_ready(START, || http::get(addr, "/").map(drop))?;
            Ok(Self { port, process })
        })
        .await?
    }

    /// Its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The process id.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pid(&self) -> Result<u32> {
        self.process.pid().context("the bare handler has ended")
    }
}

/// Serves until the process is killed.
///
/// # Errors
/// If it cannot listen.
pub async fn run(addr: SocketAddr) -> Result<()> {
    let beat = || async { ([(CONTENT_TYPE, "application/json")], ANSWER) };
    let routes = Router::new().route("/v1/groups/{group}/tenures/{tenure}/beat", put(beat));
    let listener = tokio::net::TcpListener::bind(addr).await?;
    axum::serve(listener, routes).await.context("serve")
}
