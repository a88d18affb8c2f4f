//! A Valkey or Redis server.

pub mod cluster;
pub mod sentinel;
pub mod tls;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::port::Port;
use crate::program::have;
use crate::resp::{Client, Reply};
use crate::server::{Process, must};
use crate::wait;

const START: Duration = Duration::from_secs(30);

/// Settings for [`Server::with`] that make every write survive a SIGKILL and a [`Server::restart_with_data`].
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// The server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `valkey-server`.
    Valkey,
    /// `redis-server`.
    Redis,
}

impl Flavour {
    /// Both, for tests that loop.
    pub const ALL: [Flavour; 2] = [Flavour::Valkey, Flavour::Redis];

    fn program(self) -> &'static str {
        match self {
            Flavour::Valkey => "valkey-server",
            Flavour::Redis => "redis-server",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Flavour::Valkey => "valkey",
            Flavour::Redis => "redis",
        }
    }
}

/// A running server; dropping it kills the server and removes its data.
///
/// It keeps its port while the handle lives, whether it runs or not.
#[derive(Debug)]
pub struct Server {
    flavour: Flavour,
    port: Port,
    process: Process,
}

impl Server {
    /// Starts a server without persistence. Prints a message and returns `None` if it is not installed.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed (see [`or_skip`](crate::Availability::or_skip)).
    #[track_caller]
    pub fn start(flavour: Flavour) -> Option<Server> {
        Server::with(flavour, &[])
    }

    /// Starts a server with additional settings as on the command line: `&["--maxmemory", "10mb"]`, or [`DURABLE`].
    ///
    /// # Panics
    /// As [`Server::start`].
    #[track_caller]
    pub fn with(flavour: Flavour, settings: &[&str]) -> Option<Server> {
        let program = have(flavour.program()).or_skip()?;
        Some(must(Server::launch(flavour, program, settings)))
    }

    fn launch(flavour: Flavour, program: PathBuf, settings: &[&str]) -> Result<Server> {
        let port = Port::reserve();
        let process = Process::spawn(flavour.program(), |dir| {
            let mut command = Command::new(program);
            // `./` is the process' own directory, which `restart_empty` empties; the log is in its parent.
            command
                .current_dir(dir)
                .args(["--port", &port.number().to_string(), "--bind", "127.0.0.1"]);
            command.arg("--dir").arg(dir.join("data"));
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
            // A replica syncs immediately instead of waiting five seconds for others.
            command.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
            command.args(settings);
            // The server does not start without it, which reports a failure here.
            let _ = fs::create_dir(dir.join("data"));
            command
        })?;
        let server = Server { flavour, port, process };
        server.wait_ready()?;
        Ok(server)
    }

    /// The URL for clients: `valkey://127.0.0.1:PORT` or `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.flavour.scheme(), self.addr())
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.pid().expect("the server runs")
    }

    /// The server program.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The process, for operations without a method here.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command over a new connection: `server.cli(&["GET", "key"])`.
    ///
    /// # Errors
    /// If the server cannot be reached or does not reply within twenty seconds. An error reply is
    /// `Ok(Reply::Error(…))`.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply> {
        self.client()?.call(args)
    }

    /// Opens a connection for several commands.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.addr())
    }

    /// Kills the server (SIGKILL).
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Sends SIGTERM and waits for the end of the server.
    ///
    /// # Panics
    /// If it still runs after half a minute.
    #[track_caller]
    pub fn terminate(&self) {
        must(self.process.terminate(START).map(drop));
    }

    /// Stops the server (SIGSTOP): the kernel accepts connections, and they get no reply.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn pause(&self) {
        must(self.process.pause());
    }

    /// Resumes a paused server.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn resume(&self) {
        must(self.process.resume());
    }

    /// Kills the server if it runs and starts it on the same port without data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.process.kill();
        let data = self.process.dir().join("data");
        must(
            fs::remove_dir_all(&data)
                .and_then(|()| fs::create_dir(&data))
                .context("empty the data directory"),
        );
        self.restart_with_data();
    }

    /// Kills the server if it runs and starts it on the same port with its data on disk: everything if it was started
    /// with [`DURABLE`], otherwise nothing. Its role is not kept: a replica returns as a primary.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_with_data(&self) {
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    /// Makes it a replica of `primary` and waits until it has caught up.
    ///
    /// # Panics
    /// After half a minute.
    #[track_caller]
    pub fn replica_of(&self, primary: &Server) {
        self.replica_of_port(primary.port());
    }

    /// Like `replica_of`, for a primary's TLS port; this server must be configured to replicate over TLS.
    #[track_caller]
    fn replica_of_port(&self, port: u16) {
        let port = port.to_string();
        must(self.expect_ok(&["REPLICAOF", "127.0.0.1", &port]));
        wait::until("the replica follows its primary", START, || {
            self.cli(&["INFO", "replication"])
                .is_ok_and(|info| info.text().contains("master_link_status:up"))
        });
    }

    /// Waits until this replica has every write that its primary had when this was called. A replica that was just
    /// created may not receive new writes for another second.
    ///
    /// # Panics
    /// After half a minute.
    #[track_caller]
    pub fn catch_up_with(&self, primary: &Server) {
        let wanted = must(primary.replicated_to().context("read the primary's offset"));
        wait::until("the replica has caught up", START, || {
            self.replicated_to().is_ok_and(|reached| reached >= wanted)
        });
    }

    /// The replication offset: on a primary what it sent, on a replica what it received.
    fn replicated_to(&self) -> Result<u64> {
        let info = self.cli(&["INFO", "replication"])?.text();
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        let offset = field("slave_repl_offset:").or_else(|| field("master_repl_offset:"));
        offset.context("no offset")?.parse().context("an offset")
    }

    /// Promotes a replica to primary.
    ///
    /// # Panics
    /// If it refuses.
    #[track_caller]
    pub fn promote(&self) {
        must(self.expect_ok(&["REPLICAOF", "NO", "ONE"]));
    }

    fn expect_ok(&self, args: &[&str]) -> Result<()> {
        let reply = self.cli(args)?;
        ensure!(
            reply == Reply::Simple("OK".to_owned()),
            "{args:?} was answered with {reply:?}"
        );
        Ok(())
    }

    fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let reply = self.cli(&["PING"])?;
            // It replies -LOADING while it reads its data.
            ensure!(
                reply == Reply::Simple("PONG".to_owned()),
                "PING was answered with {reply:?}"
            );
            Ok(())
        })
    }
}
