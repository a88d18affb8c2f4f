//! A Consul agent of a test's own, in development mode: one server, everything in memory.

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
    /// The other ports it listens on (RPC, gossip), held for as long as it may.
    _inner: [Port; 2],
    process: Process,
}

impl Agent {
    /// Starts an agent and waits until it leads itself. `None`, after a loud word, when it isn't installed.
    ///
    /// # Panics
    /// When it is installed and doesn't start, or isn't installed and has to be.
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Agent> {
        Agent::with(&[])
    }

    /// Starts an agent with more arguments for `consul agent`.
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
            // Nobody here asks for these, and their default ports would clash between two agents.
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

    /// Its HTTP API: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// `127.0.0.1:PORT` of its HTTP API.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.http.addr()
    }

    /// The process, to be killed, paused and resumed.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// One request to its HTTP API: `agent.http("PUT", "/v1/kv/key", "value")`.
    ///
    /// # Errors
    /// When it can't be reached or doesn't answer within twenty seconds.
    pub fn http(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        http::request(self.addr(), method, path, body)
    }

    /// As [`Agent::http`], with a token.
    ///
    /// # Errors
    /// As [`Agent::http`].
    pub fn http_as(&self, token: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        http::request_with(self.addr(), method, path, &[("X-Consul-Token", token)], body)
    }

    /// Kills it if it runs and starts it on the same ports, with nothing in it.
    ///
    /// # Panics
    /// When it doesn't start.
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
