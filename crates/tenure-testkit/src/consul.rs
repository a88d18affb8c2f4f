//! A Consul agent in development mode: one server, everything in memory.

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

/// A running agent; dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    http: Port,
    /// Its other ports (RPC, gossip), reserved while the agent may use them.
    _inner: [Port; 2],
    process: Process,
}

impl Agent {
    /// Starts an agent and waits until it is its own leader. Prints a message and returns `None` if Consul is not
    /// installed.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Agent> {
        Agent::with(&[])
    }

    /// Starts an agent with additional arguments for `consul agent`.
    ///
    /// # Panics
    /// As [`Agent::start`].
    #[must_use]
    #[track_caller]
    pub fn with(settings: &[&str]) -> Option<Agent> {
        let program = have("consul").or_skip()?;
        Some(must(Agent::launch(&program, settings)))
    }

    fn launch(program: &Path, settings: &[&str]) -> Result<Agent> {
        let http = Port::reserve();
        let inner = [Port::reserve(), Port::reserve()];
        let process = Process::spawn("consul", |dir| {
            let mut command = Command::new(program);
            command
                .current_dir(dir)
                .args(["agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1"]);
            command.arg(format!("-http-port={}", http.number()));
            command.arg(format!("-server-port={}", inner[0].number()));
            command.arg(format!("-serf-lan-port={}", inner[1].number()));
            // Unused here; their default ports would clash between two agents.
            command.args(["-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"]);
            command.args(["-log-level=warn", "-node=test"]).args(settings);
            command
        })?;
        let agent = Agent {
            http,
            _inner: inner,
            process,
        };
        agent.wait_ready()?;
        Ok(agent)
    }

    /// The URL of its HTTP API: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The address of its HTTP API: `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.http.addr()
    }

    /// The process, to kill, pause and resume it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one request to its HTTP API: `agent.http("PUT", "/v1/kv/key", "value")`.
    ///
    /// # Errors
    /// If it cannot be reached or does not answer within twenty seconds.
    pub fn http(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        http::request(self.addr(), method, path, body)
    }

    /// Like [`Agent::http`], with a token.
    ///
    /// # Errors
    /// As [`Agent::http`].
    pub fn http_as(&self, token: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        http::request_with(self.addr(), method, path, &[("X-Consul-Token", token)], body)
    }

    /// Kills the agent if it runs and starts it on the same ports, without data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_empty(&self) {
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let (status, leader) = http::get(self.addr(), "/v1/status/leader")?;
            ensure!(
                status == 200 && leader.contains(':'),
                "no leader yet: {status} {leader}"
            );
            Ok(())
        })
    }
}
