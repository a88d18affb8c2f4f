//! A Tenure daemon, as a release build.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_testkit::port::Port;
use tenure_testkit::{Process, http};

const START: Duration = Duration::from_secs(20);

/// The daemon; dropping it kills it and removes its data.
pub struct Daemon {
    port: Port,
    process: Process,
}

impl Daemon {
    /// Starts a daemon on a store (`None`: its own file, the default) and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be built or does not start.
    pub async fn start(store: Option<String>) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::launch(&program()?, store.as_deref())).await?
    }

    fn launch(program: &Path, store: Option<&str>) -> Result<Self> {
        let port = Port::reserve();
        let process = Process::spawn("tenure", |dir| {
            let mut command = Command::new(program);
            command
                .current_dir(dir)
                .args(["serve", "--listen", &port.addr().to_string()]);
            // Each waiting request has a connection, and at most half of the connections may wait.
            command.args(["--limits-connections", "30000"]);
            command.arg("--data-dir").arg(dir.join("data"));
            command.args(store.map(|url| format!("--store={url}")));
            command
        })?;
        process.wait_ready(START, || {
            let (status, body) = http::get(port.addr(), "/readyz")?;
            ensure!(status == 200, "not ready: {status} {body}");
            Ok(())
        })?;
        Ok(Self { port, process })
    }

    /// The address of its HTTP API.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Its HTTP API as a store's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The process id.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pid(&self) -> Result<u32> {
        self.process
            .pid()
            .with_context(|| format!("the daemon has ended:\n{}", self.process.log_tail()))
    }
}

/// The `tenure` program next to this one. Under cargo it is built first, so that no stale build is measured.
fn program() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("tenure");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--release", "--package", "tenure-cli"])
            .status();
        ensure!(built.context("run cargo")?.success(), "the daemon cannot be built");
    }
    ensure!(
        beside.is_file(),
        "{} is missing: cargo build --release -p tenure-cli",
        beside.display()
    );
    Ok(beside)
}
