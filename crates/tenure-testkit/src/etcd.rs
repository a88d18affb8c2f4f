//! An etcd server: a cluster of one, on disk.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::http;
use crate::port::Port;
use crate::program::have;
use crate::server::{Process, must};

const START: Duration = Duration::from_secs(45);

/// A running server; dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Etcd {
    client: Port,
    /// The port for its peers, reserved while it may listen there.
    _peer: Port,
    process: Process,
}

impl Etcd {
    /// Starts a server and waits until it is healthy. Prints a message and returns `None` if etcd is not installed.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Etcd> {
        let program = have("etcd").or_skip()?;
        Some(must(Etcd::launch(&program)))
    }

    fn launch(program: &Path) -> Result<Etcd> {
        let client = Port::reserve();
        let peer = Port::reserve();
        let client_url = format!("http://{}", client.addr());
        let peer_url = format!("http://{}", peer.addr());
        let process = Process::spawn("etcd", |dir| {
            let mut command = Command::new(program);
            command
                .current_dir(dir)
                .args(["--name", "test", "--logger", "zap", "--log-level", "warn"]);
            command.arg("--data-dir").arg(dir.join("data"));
            command.args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ]);
            command.args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ]);
            command.args(["--initial-cluster", &format!("test={peer_url}")]);
            command
        })?;
        let etcd = Etcd {
            client,
            _peer: peer,
            process,
        };
        etcd.wait_ready()?;
        Ok(etcd)
    }

    /// The URL of its HTTP API: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The address of its HTTP API: `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.client.addr()
    }

    /// The process, to kill, pause and resume it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one request to its JSON gateway: `etcd.http("POST", "/v3/lease/grant", r#"{"TTL": 10}"#)`.
    ///
    /// # Errors
    /// If it cannot be reached or does not answer within twenty seconds.
    pub fn http(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        http::request(self.addr(), method, path, body)
    }

    /// Kills the server if it runs and starts it on the same ports with its data on disk.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_with_data(&self) {
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let (status, health) = http::get(self.addr(), "/health")?;
            ensure!(
                status == 200 && health.contains("true"),
                "not healthy yet: {status} {health}"
            );
            Ok(())
        })
    }
}
