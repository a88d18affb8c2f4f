//! A Valkey or Redis server of a test's own.

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

/// Makes every write survive a SIGKILL, for [`Server::with`] and [`Server::restart_with_data`].
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// Which of the two servers.
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

/// A running server; dropping it kills it and removes its data.
///
/// It keeps its port for as long as the handle lives, whether it runs or not.
#[derive(Debug)]
pub struct Server {
    flavour: Flavour,
    port: Port,
    process: Process,
}

impl Server {
    /// Starts a server that keeps nothing on disk. `None`, after a loud word, when it isn't installed.
    ///
    /// # Panics
    /// When it is installed and doesn't start, or isn't installed and has to be (see
    /// [`or_skip`](crate::Availability::or_skip)).
    #[track_caller]
    pub fn start(flavour: Flavour) -> Option<Server> {
        Server::with(flavour, &[])
    }

    /// Starts a server with more settings, as on the command line: `&["--maxmemory", "10mb"]`, or [`DURABLE`].
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
            // `./` is the process' own directory, emptied by `restart_empty`; the log lies one up.
            command
                .current_dir(dir)
                .args(["--port", &port.number().to_string(), "--bind", "127.0.0.1"]);
            command.arg("--dir").arg(dir.join("data"));
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
            // A replica syncs at once rather than after five seconds, in which others might join.
            command.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
            command.args(settings);
            // The server refuses to start without it; a failure shows as that.
            let _ = fs::create_dir(dir.join("data"));
            command
        })?;
        let server = Server { flavour, port, process };
        server.wait_ready()?;
        Ok(server)
    }

    /// Where clients connect: `valkey://127.0.0.1:PORT` or `redis://127.0.0.1:PORT`.
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

    /// Its process id.
    ///
    /// # Panics
    /// When it isn't running.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.pid().expect("the server runs")
    }

    /// Which of the two it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The process, for what has no method here.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command over a connection of its own: `server.cli(&["GET", "key"])`.
    ///
    /// # Errors
    /// When the server can't be reached or doesn't answer within twenty seconds. A refusal is `Ok(Reply::Error(…))`.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply> {
        self.client()?.call(args)
    }

    /// A connection for more than one command.
    ///
    /// # Errors
    /// When the server can't be reached.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.addr())
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// When it still runs after half a minute.
    #[track_caller]
    pub fn terminate(&self) {
        must(self.process.terminate(START).map(drop));
    }

    /// Freezes it (SIGSTOP): it accepts connections and answers nothing.
    ///
    /// # Panics
    /// When it isn't running.
    #[track_caller]
    pub fn pause(&self) {
        must(self.process.pause());
    }

    /// Lets a frozen server run on.
    ///
    /// # Panics
    /// When it isn't running.
    #[track_caller]
    pub fn resume(&self) {
        must(self.process.resume());
    }

    /// Kills it if it runs and starts it on the same port with nothing in it.
    ///
    /// # Panics
    /// When it doesn't start.
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

    /// Kills it if it runs and starts it on the same port with what it has on disk: everything when it was started
    /// with [`DURABLE`], otherwise nothing. Its role is not kept: a replica comes back as a primary.
    ///
    /// # Panics
    /// When it doesn't start.
    #[track_caller]
    pub fn restart_with_data(&self) {
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    /// Makes it a replica of `primary` and waits until it has caught up with it.
    ///
    /// # Panics
    /// When it hasn't after half a minute.
    #[track_caller]
    pub fn replica_of(&self, primary: &Server) {
        self.replica_of_port(primary.port());
    }

    /// The same for a primary's port for TLS, by a server that was told to replicate over TLS.
    #[track_caller]
    fn replica_of_port(&self, port: u16) {
        let port = port.to_string();
        must(self.expect_ok(&["REPLICAOF", "127.0.0.1", &port]));
        wait::until("the replica follows its primary", START, || {
            self.cli(&["INFO", "replication"])
                .is_ok_and(|info| info.text().contains("master_link_status:up"))
        });
    }

    /// Waits until this replica has everything that its primary had when this was called. A replica that was just made
    /// may not hear of new writes for another second.
    ///
    /// # Panics
    /// When it hasn't after half a minute.
    #[track_caller]
    pub fn catch_up_with(&self, primary: &Server) {
        let wanted = must(primary.replicated_to().context("ask the primary how far it is"));
        wait::until("the replica has caught up", START, || {
            self.replicated_to().is_ok_and(|reached| reached >= wanted)
        });
    }

    /// How far the stream of writes has come here: on a primary what it sent, on a replica what it has.
    fn replicated_to(&self) -> Result<u64> {
        let info = self.cli(&["INFO", "replication"])?.text();
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        let offset = field("slave_repl_offset:").or_else(|| field("master_repl_offset:"));
        offset.context("no offset")?.parse().context("an offset")
    }

    /// Makes a replica a primary.
    ///
    /// # Panics
    /// When it refuses.
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
            // It says -LOADING while it reads its data.
            ensure!(
                reply == Reply::Simple("PONG".to_owned()),
                "PING was answered with {reply:?}"
            );
            Ok(())
        })
    }
}
