//! A Postgres server of a test's own.
//!
//! Postgres differs from the other servers in three ways that matter here. It refuses to run as root, so under root it
//! runs as `postgres` (or `nobody`). Each of its children is the leader of a session of its own, so a signal to the
//! process group reaches only the first of them; this handle signals the children one by one. And it leaves a segment of
//! System V shared memory behind when it is killed, of which a machine has few; so a dropped handle lets it clear up.

mod account;
mod children;
mod shared;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::certs::Certs;
use crate::port::Port;
use crate::program::have;
use crate::server::{Process, must};
use account::Account;
use children::Frozen;
pub use shared::shared;

const START: Duration = Duration::from_secs(45);
/// How long a dropped server may clear up.
const CLEAR_UP: Duration = Duration::from_secs(2);

/// The superuser of every test server; connections from this machine need no password.
pub const USER: &str = "postgres";

/// A running server; dropping it ends it and removes its data.
///
/// It keeps its port for as long as the handle lives, whether it runs or not. Nothing it writes is flushed to the disk
/// (`fsync=off`), which no death of a process can tell from a flush: what was committed survives [`Server::kill`].
///
/// What any client may do with it is in [`Endpoint`].
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    _port: Port,
    process: Process,
    account: Account,
    frozen: Mutex<Option<Frozen>>,
}

/// Where a server is, its own or one that all tests of a run share ([`shared`]).
#[derive(Debug)]
pub struct Endpoint {
    port: u16,
    program: PathBuf,
    databases: AtomicU32,
}

impl Server {
    /// Starts a server with an empty database `postgres`. `None`, after a loud word, when it isn't installed.
    ///
    /// # Panics
    /// When it is installed and doesn't start, or isn't installed and has to be (see
    /// [`or_skip`](crate::Availability::or_skip)).
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Server> {
        Server::with(&[])
    }

    /// Starts a server with more settings: `&["max_connections=20", "deadlock_timeout=50ms"]`.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn with(settings: &[&str]) -> Option<Server> {
        let program = have("postgres").or_skip()?;
        Some(must(Server::launch(program, settings, None)))
    }

    /// Starts a server that also speaks TLS, with the server's certificate; with `client_certs` it lets only those in who
    /// show one by the same authority.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn with_tls(certs: &Certs, client_certs: bool) -> Option<Server> {
        let server = Server::start()?;
        must(server.speak_tls(certs, client_certs));
        Some(server)
    }

    /// Puts the files beside the data, since a Postgres reads only keys of its own account, and starts anew.
    fn speak_tls(&self, certs: &Certs, client_certs: bool) -> Result<()> {
        let data = data(self.process.dir());
        for (from, name) in [
            (certs.server_cert(), "server.crt"),
            (certs.server_key(), "server.key"),
            (certs.ca(), "ca.crt"),
        ] {
            let to = data.join(name);
            fs::copy(&from, &to).with_context(|| format!("copy {name}"))?;
            self.account.give(&to)?;
        }
        let mut settings = fs::read_to_string(data.join("postgresql.conf")).context("read the settings")?;
        settings.push_str("\nssl = on\nssl_ca_file = 'ca.crt'\n");
        fs::write(data.join("postgresql.conf"), settings).context("write the settings")?;
        if client_certs {
            let rule = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n";
            fs::write(data.join("pg_hba.conf"), rule).context("write who may come")?;
        }
        self.kill();
        self.process.restart().and_then(|()| self.wait_ready())
    }

    fn launch(program: PathBuf, settings: &[&str], of_run: Option<&Path>) -> Result<Server> {
        let port = Port::reserve();
        let account = Account::for_servers()?;
        let mut prepared = Ok(());
        let build = |dir: &Path| {
            prepared = account.give(dir).and_then(|()| init(&program, &account, dir));
            let mut command = Command::new(&program);
            account.run(&mut command).current_dir(dir).arg("-D").arg(data(dir));
            command.args(["-p", &port.number().to_string()]);
            let ours = [
                "listen_addresses=127.0.0.1",
                "unix_socket_directories=",
                "fsync=off",
                "full_page_writes=off",
                "shared_buffers=16MB",
                // Kept with its data, and so removed with it.
                "dynamic_shared_memory_type=mmap",
            ];
            for setting in ours.iter().chain(settings) {
                command.args(["-c", setting]);
            }
            command
        };
        let process = match of_run {
            Some(folder) => Process::spawn_for_run(folder, "postgres", build),
            None => Process::spawn("postgres", build),
        }?;
        prepared?;
        let server = Server {
            endpoint: Endpoint::at(port.number(), program),
            _port: port,
            process,
            account,
            frozen: Mutex::new(None),
        };
        server.wait_ready()?;
        Ok(server)
    }

    /// The id of its first process, the parent of all others.
    ///
    /// # Panics
    /// When it isn't running.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.pid().expect("the server runs")
    }

    /// The process, for what has no method here. Its own `pause`, `resume`, `kill` and `restart` leave the server's
    /// children out: use those of this handle.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills all of it at once (SIGKILL), as a crash would.
    pub fn kill(&self) {
        // The parent is stopped before it is asked for its children: it makes no more, and reaps none, so that none of
        // their numbers can pass to somebody else.
        if let Some(parent) = self.process.pid()
            && self.process.pause().is_ok()
        {
            self.melt(|frozen| frozen.let_go(false));
            let children = children::of(parent);
            children::signal(&children, Signal::KILL);
            self.process.kill();
            children::wait_gone(&children);
        }
        // Frozen children whose parent is gone end by themselves as soon as they run.
        self.melt(|frozen| frozen.let_go(true));
        self.process.kill();
    }

    /// Asks it to end at once but in order, clients or not, and waits until it has ("fast shutdown").
    ///
    /// # Panics
    /// When it isn't running, or still runs after 45 seconds.
    #[track_caller]
    pub fn terminate(&self) {
        must(self.end(Signal::INT, START));
    }

    /// Freezes all of it (SIGSTOP): the system accepts connections in its name, and nothing answers.
    ///
    /// # Panics
    /// When it isn't running.
    #[track_caller]
    pub fn pause(&self) {
        must(self.process.pause());
        let parent = self.pid();
        self.melt(|frozen| frozen.let_go(false));
        let frozen = must(Frozen::freeze(children::of(parent)));
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(frozen);
    }

    /// Lets a frozen server run on.
    ///
    /// # Panics
    /// When it isn't running.
    #[track_caller]
    pub fn resume(&self) {
        self.melt(|frozen| frozen.let_go(true));
        must(self.process.resume());
    }

    /// Kills it if it runs and starts it on the same port with nothing in it.
    ///
    /// # Panics
    /// When it doesn't start.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.clear_up();
        let dir = self.process.dir();
        must(fs::remove_dir_all(data(dir)).context("remove the data"));
        must(init(&self.endpoint.program, &self.account, dir));
        self.restart_with_data();
    }

    /// Kills it if it runs and starts it on the same port with all that was committed.
    ///
    /// # Panics
    /// When it doesn't start.
    #[track_caller]
    pub fn restart_with_data(&self) {
        self.kill();
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    fn end(&self, signal: Signal, within: Duration) -> Result<()> {
        self.melt(|frozen| frozen.let_go(true));
        self.process.signal(signal)?;
        // A paused one would not see the request; and one that is not may have ended by now.
        let _ = self.process.resume();
        self.process.wait(within).map(drop)
    }

    /// An end after which its data can go: immediate, without a checkpoint, and yet one that gives its shared memory back.
    fn clear_up(&self) {
        if self.end(Signal::QUIT, CLEAR_UP).is_ok() {
            return;
        }
        self.kill();
        // What is killed leaves this file, and what the file names.
        if let Some(segment) = segment(self.process.dir()) {
            let mut command = Command::new("ipcrm");
            // Gone already, or no such program: a test is no worse for it.
            let _ = command.args(["-m", &segment]).stderr(Stdio::null()).status();
        }
    }

    fn melt(&self, how: impl FnOnce(Frozen)) {
        if let Some(frozen) = self.frozen.lock().unwrap_or_else(PoisonError::into_inner).take() {
            how(frozen);
        }
    }

    /// It writes how far it is into a file of its own, and looking there opens no connection.
    fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let state = state(self.process.dir()).context("no state yet")?;
            let lines: Vec<&str> = state.lines().map(str::trim_end).collect();
            // After a kill the file of the life before lies there until the new one writes its own.
            let is_its_own = lines.first().and_then(|pid| pid.parse().ok()) == self.process.pid();
            ensure!(is_its_own && lines.get(7) == Some(&"ready"), "not ready yet: {lines:?}");
            Ok(())
        })
    }
}

impl Deref for Server {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Endpoint {
    fn at(port: u16, program: PathBuf) -> Endpoint {
        Endpoint {
            port,
            program,
            databases: AtomicU32::new(0),
        }
    }

    /// Where clients connect: `postgres://postgres@127.0.0.1:PORT/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.addr())
    }

    /// Makes another, empty database in it and returns its URL: cheaper (some 50 ms) than another server.
    ///
    /// # Panics
    /// When the server refuses.
    #[must_use]
    #[track_caller]
    pub fn database(&self) -> String {
        // Other processes make databases there as well.
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        must(self.sql(&format!("CREATE DATABASE {name}")));
        self.url_of(&name)
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `psql` on this server's first database, as a test wants it: no start-up file, no decoration, values separated by
    /// `|`, an end at the first error. Arguments can be added: `server.psql().args(["-f", "schema.sql"])`.
    #[must_use]
    pub fn psql(&self) -> Command {
        let beside = self.program.with_file_name("psql");
        let mut command = Command::new(if beside.is_file() { &beside } else { Path::new("psql") });
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url()])
            .env("PGCONNECT_TIMEOUT", "20");
        command
    }

    /// Runs statements in one transaction over a connection of its own and returns what they answer, a line a row.
    ///
    /// # Errors
    /// When the server can't be reached within twenty seconds or refuses a statement; the error carries its words.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let output = self.psql().args(["-c", statements]).output().context("run psql")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {}", said.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.clear_up();
    }
}

fn data(dir: &Path) -> PathBuf {
    dir.join("data")
}

/// What a server writes about itself while it runs: its pid, …, the key and the id of its shared memory, its state.
fn state(dir: &Path) -> Option<String> {
    fs::read_to_string(data(dir).join("postmaster.pid")).ok()
}

/// The id of a server's segment of System V shared memory.
fn segment(dir: &Path) -> Option<String> {
    let state = state(dir)?;
    let (_, id) = state.lines().nth(6)?.trim().split_once(char::is_whitespace)?;
    Some(id.trim().to_owned())
}

/// Makes an empty database cluster.
fn init(program: &Path, account: &Account, dir: &Path) -> Result<()> {
    let mut command = Command::new(program.with_file_name("initdb"));
    account.run(&mut command).current_dir(dir).arg("-D").arg(data(dir));
    command.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
    // A megabyte of log to begin with in place of sixteen.
    command.arg("--wal-segsize=1");
    let output = command.output().context("run initdb")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "initdb: {}", said.trim_end());
    Ok(())
}
