//! A Postgres server.
//!
//! Postgres differs from the other servers in three ways. It refuses to run as root, so under root it runs as
//! `postgres` (or `nobody`). Each child process leads its own session, so a signal to the process group reaches only
//! the parent; this handle signals the children one by one. If killed, it leaks a segment of System V shared memory, of
//! which a machine has few; so dropping the handle shuts the server down.

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
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
/// The time limit for the shutdown of a dropped server.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// The superuser of every test server; local connections need no password.
pub const USER: &str = "postgres";

/// A running server; dropping it stops the server and removes its data.
///
/// It keeps its port while the handle lives, whether it runs or not. It runs with `fsync=off`: the death of a process
/// loses no committed data, so it survives [`Server::kill`].
///
/// [`Endpoint`] has the methods of clients.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    _port: Port,
    process: Process,
    account: Account,
    frozen: Mutex<Option<Frozen>>,
}

/// The address of a server: one test's own, or one that all tests of a run share ([`shared`]).
#[derive(Debug)]
pub struct Endpoint {
    port: u16,
    program: PathBuf,
    databases: AtomicU32,
}

impl Server {
    /// Starts a server with an empty database `postgres`. Prints a message and returns `None` if Postgres is not
    /// installed.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed (see [`or_skip`](crate::Availability::or_skip)).
    #[must_use]
    #[track_caller]
    pub fn start() -> Option<Server> {
        Server::with(&[])
    }

    /// Starts a server with additional settings: `&["max_connections=20", "deadlock_timeout=50ms"]`.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn with(settings: &[&str]) -> Option<Server> {
        let program = have("postgres").or_skip()?;
        Some(must(Server::launch(program, settings, None)))
    }

    /// Starts a server with TLS and the server's certificate. With `client_certs` it accepts only clients with a
    /// certificate of the same authority.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn with_tls(certs: &Certs, client_certs: bool) -> Option<Server> {
        let server = Server::start()?;
        must(server.enable_tls(certs, client_certs));
        Some(server)
    }

    /// Copies the files next to the data, because Postgres reads only keys of its own account, and restarts.
    fn enable_tls(&self, certs: &Certs, client_certs: bool) -> Result<()> {
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
            fs::write(data.join("pg_hba.conf"), rule).context("write the access rules")?;
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
                // Stored with its data, and removed with it.
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

    /// The id of the parent process.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.pid().expect("the server runs")
    }

    /// The process. Its own `pause`, `resume`, `kill` and `restart` do not reach the server's children: use those of
    /// this handle.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills all its processes (SIGKILL), as a crash would.
    pub fn kill(&self) {
        // The parent is stopped before its children are listed: until then it creates none and reaps none, so no pid can
        // be reused.
        if let Some(parent) = self.process.pid()
            && self.process.pause().is_ok()
        {
            self.take_frozen(|frozen| frozen.release(false));
            let children = children::of(parent);
            children::signal(&children, Signal::KILL);
            self.process.kill();
            children::wait_gone(&children);
        }
        // Stopped children without a parent end as soon as they run.
        self.take_frozen(|frozen| frozen.release(true));
        self.process.kill();
    }

    /// Stops it with a "fast shutdown", which does not wait for clients, and waits for its end.
    ///
    /// # Panics
    /// If it is not running, or still runs after 45 seconds.
    #[track_caller]
    pub fn terminate(&self) {
        must(self.end(Signal::INT, START));
    }

    /// Stops all its processes (SIGSTOP): the kernel accepts connections, and they get no reply.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn pause(&self) {
        must(self.process.pause());
        let parent = self.pid();
        self.take_frozen(|frozen| frozen.release(false));
        let frozen = must(Frozen::freeze(children::of(parent)));
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(frozen);
    }

    /// Resumes a paused server.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn resume(&self) {
        self.take_frozen(|frozen| frozen.release(true));
        must(self.process.resume());
    }

    /// Kills the server if it runs and starts it on the same port without data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.shut_down();
        let dir = self.process.dir();
        must(fs::remove_dir_all(data(dir)).context("remove the data"));
        must(init(&self.endpoint.program, &self.account, dir));
        self.restart_with_data();
    }

    /// Kills the server if it runs and starts it on the same port with all committed data.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_with_data(&self) {
        self.kill();
        must(self.process.restart().and_then(|()| self.wait_ready()));
    }

    fn end(&self, signal: Signal, within: Duration) -> Result<()> {
        self.take_frozen(|frozen| frozen.release(true));
        self.process.signal(signal)?;
        // A stopped process would not handle the signal. It may already have ended.
        let _ = self.process.resume();
        self.process.wait(within).map(drop)
    }

    /// Stops it with an immediate shutdown: no checkpoint, but its shared memory is freed.
    fn shut_down(&self) {
        if self.end(Signal::QUIT, SHUTDOWN).is_ok() {
            return;
        }
        self.kill();
        // A killed server leaves this file and the segment that it names.
        if let Some(segment) = segment(self.process.dir()) {
            let mut command = Command::new("ipcrm");
            // The segment is gone already or `ipcrm` is missing: neither fails the test.
            let _ = command.args(["-m", &segment]).stderr(Stdio::null()).status();
        }
    }

    fn take_frozen(&self, how: impl FnOnce(Frozen)) {
        if let Some(frozen) = self.frozen.lock().unwrap_or_else(PoisonError::into_inner).take() {
            how(frozen);
        }
    }

    /// Reads the progress from the server's pid file, without a connection.
    fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let state = state(self.process.dir()).context("no state yet")?;
            let lines: Vec<&str> = state.lines().map(str::trim_end).collect();
            // After a kill the file of the previous process remains until the new one writes its own.
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

    /// The URL for clients: `postgres://postgres@127.0.0.1:PORT/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.addr())
    }

    /// Creates another, empty database and returns its URL. It costs about 50 ms, less than another server.
    ///
    /// # Panics
    /// If the server refuses.
    #[must_use]
    #[track_caller]
    pub fn database(&self) -> String {
        // Other processes also create databases there, and in a long run a process id comes up again.
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let name = format!("test_{}_{started}_{number}", std::process::id());
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

    /// `psql` on this server's first database, without a start-up file or decoration, with `|` between values, and an
    /// exit at the first error. More arguments can be added: `server.psql().args(["-f", "schema.sql"])`.
    #[must_use]
    pub fn psql(&self) -> Command {
        let beside = self.program.with_file_name("psql");
        let mut command = Command::new(if beside.is_file() { &beside } else { Path::new("psql") });
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url()])
            .env("PGCONNECT_TIMEOUT", "20");
        command
    }

    /// Runs statements in one transaction over a new connection and returns the rows, one per line.
    ///
    /// # Errors
    /// If the server cannot be reached within twenty seconds or refuses a statement; the error contains its message.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let output = self.psql().args(["-c", statements]).output().context("run psql")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {}", said.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn data(dir: &Path) -> PathBuf {
    dir.join("data")
}

/// The server's pid file: its pid, …, the key and id of its shared memory, its state.
fn state(dir: &Path) -> Option<String> {
    fs::read_to_string(data(dir).join("postmaster.pid")).ok()
}

/// The id of a server's segment of System V shared memory.
fn segment(dir: &Path) -> Option<String> {
    let state = state(dir)?;
    let (_, id) = state.lines().nth(6)?.trim().split_once(char::is_whitespace)?;
    Some(id.trim().to_owned())
}

/// Creates an empty database cluster.
fn init(program: &Path, account: &Account, dir: &Path) -> Result<()> {
    let mut command = Command::new(program.with_file_name("initdb"));
    account.run(&mut command).current_dir(dir).arg("-D").arg(data(dir));
    command.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
    // Starts with one megabyte of WAL instead of sixteen.
    command.arg("--wal-segsize=1");
    let output = command.output().context("run initdb")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "initdb: {}", said.trim_end());
    Ok(())
}
