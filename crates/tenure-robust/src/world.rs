//! The processes of a round: a store, its daemons, and proxies between everything.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure_testkit::port::Port;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Process, Proxy, http};

/// The longest ttl that the daemons allow, and so the wait after a loss of data.
pub const MAX_TTL: Duration = Duration::from_secs(4);
const START: Duration = Duration::from_secs(40);

/// What a round runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One daemon on an embedded store.
    Sqlite,
    /// Three daemons on one Valkey.
    Valkey,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Sqlite, Kind::Valkey];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Valkey => "valkey",
        }
    }
}

/// A daemon, the way to it, and its way to the store.
#[derive(Debug)]
pub struct Daemon {
    /// The process.
    pub process: Process,
    /// Between clients and daemon.
    pub clients: Proxy,
    /// Between daemon and store; an embedded store has none.
    pub store: Option<Proxy>,
    port: Port,
}

impl Daemon {
    /// Its own address, past the proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    fn launch(tenure: &Path, store: Option<&Server>, planted: Option<&str>) -> Result<Self> {
        let port = Port::reserve();
        let proxy = store.map(|server| Proxy::start(server.addr()));
        let process = Process::spawn("tenure serve", |dir| {
            let mut command = Command::new(tenure);
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("TENURE_") {
                    command.env_remove(name);
                }
            }
            command
                .current_dir(dir)
                .args(["serve", "--listen", &port.addr().to_string(), "--drain", "0s"]);
            command.args([
                "--max-ttl",
                &format!("{}ms", MAX_TTL.as_millis()),
                "--brake-share",
                "1.0",
            ]);
            command.arg("--data-dir").arg(dir.join("data"));
            command.args(proxy.as_ref().map(|proxy| format!("--store={}", proxy.url("valkey"))));
            if let Some(defect) = planted {
                command.env("TENURE_PLANTED", defect);
            }
            command
        })?;
        let clients = Proxy::start(port.addr());
        let daemon = Self {
            process,
            clients,
            store: proxy,
            port,
        };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let (status, body) = http::get(self.addr(), "/readyz")?;
            ensure!(status == 200, "not ready: {status} {body}");
            Ok(())
        })
    }

    /// Where its embedded store is.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.process.dir().join("data/tenure.db")
    }
}

/// The processes.
#[derive(Debug)]
pub struct World {
    /// What it is.
    pub kind: Kind,
    /// The daemons.
    pub daemons: Vec<Daemon>,
    /// The store, if it is a process of its own.
    pub server: Option<Server>,
}

impl World {
    /// Starts everything. The word of an operator ends the wait of the new store.
    ///
    /// # Errors
    /// If a program is missing or does not start.
    pub fn start(kind: Kind, tenure: &Path, planted: Option<&str>) -> Result<Self> {
        let server = match kind {
            Kind::Sqlite => None,
            Kind::Valkey => Some(Server::with(Flavour::Valkey, DURABLE).context("valkey-server is not installed")?),
        };
        let count = if kind == Kind::Sqlite { 1 } else { 3 };
        let daemons: Result<Vec<_>> = (0..count)
            .map(|_| Daemon::launch(tenure, server.as_ref(), planted))
            .collect();
        let world = Self {
            kind,
            daemons: daemons?,
            server,
        };
        let (status, said) = http::request(world.daemons[0].addr(), "POST", "/v1/settle", "")?;
        ensure!(status == 200, "the store is not settled: {status} {said}");
        Ok(world)
    }

    /// Copies the logs of all processes into a folder.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn keep_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (n, daemon) in self.daemons.iter().enumerate() {
            fs::write(folder.join(format!("daemon-{n}.log")), daemon.process.log())?;
        }
        if let Some(server) = &self.server {
            fs::write(folder.join("valkey.log"), server.process().log())?;
        }
        Ok(())
    }
}

/// The `tenure` program: beside this one, or beside its folder for a test.
///
/// # Errors
/// If it has not been built.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    for folder in own.ancestors().skip(1).take(2) {
        let found = folder.join("tenure");
        if found.is_file() {
            return Ok(found);
        }
    }
    bail!("{} has no `tenure` beside it: cargo build -p tenure-cli", own.display())
}
