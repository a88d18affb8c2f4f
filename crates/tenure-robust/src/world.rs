//! The processes of a round: a store, its daemons, and proxies between everything.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure_testkit::disk::SmallDisk;
use tenure_testkit::port::Port;
use tenure_testkit::postgres;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::valkey::sentinel::{Sentinel, Sentinels};
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Process, Proxy, http};

/// The longest ttl that the daemons allow, and so the wait after a loss of data.
pub const MAX_TTL: Duration = Duration::from_secs(4);
const START: Duration = Duration::from_secs(40);
/// The slots of a cluster.
const SLOTS: usize = 16_384;
/// The room of an embedded store.
const DISK: u64 = 32 << 20;

/// What a round runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One daemon on an embedded store.
    Sqlite,
    /// Three daemons on one Valkey.
    Valkey,
    /// Three daemons on a primary with two replicas, watched by three sentinels.
    Sentinel,
    /// Three daemons on a cluster of three primaries, with a group on each.
    Cluster,
    /// Two daemons on one Valkey and one Postgres, with a roster.
    Ledger,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Sqlite, Kind::Valkey, Kind::Sentinel, Kind::Cluster, Kind::Ledger];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Valkey => "valkey",
            Kind::Sentinel => "sentinel",
            Kind::Cluster => "cluster",
            Kind::Ledger => "ledger",
        }
    }

    fn daemons(self) -> usize {
        match self {
            Kind::Sqlite => 1,
            Kind::Ledger => 2,
            Kind::Valkey | Kind::Sentinel | Kind::Cluster => 3,
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
    /// Between daemon and store, if the store is one server.
    pub store: Option<Proxy>,
    /// Between daemon and ledger, if that is a server.
    pub ledger: Option<Proxy>,
    /// What the embedded store is on, where a disk could be mounted.
    pub disk: Option<SmallDisk>,
    data: PathBuf,
    port: Port,
}

impl Daemon {
    /// Its own address, past the proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    fn launch(tenure: &Path, store: &Store, ledger: Option<&postgres::Server>, planted: Option<&str>) -> Result<Self> {
        let port = Port::reserve();
        let (proxy, url) = match store {
            Store::Embedded => (None, None),
            Store::Server(server) => {
                let proxy = Proxy::start(server.addr());
                let url = proxy.url("valkey");
                (Some(proxy), Some(url))
            }
            Store::Sentinels(sentinels) => (None, Some(sentinels.url())),
            Store::Cluster(cluster) => (None, Some(cluster.url())),
        };
        let ledger = ledger.map(|server| Proxy::start(server.addr()));
        let disk = match store {
            Store::Embedded => SmallDisk::mount(DISK),
            _ => None,
        };
        let mut data = disk.as_ref().map(|disk| disk.path().to_owned());
        let process = Process::spawn("tenure serve", |dir| {
            let data = data.get_or_insert_with(|| dir.join("data"));
            let mut command = Command::new(tenure);
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("TENURE_") {
                    command.env_remove(name);
                }
            }
            command.current_dir(dir).args([
                "serve",
                "--listen",
                &port.addr().to_string(),
                "--drain",
                "0s",
                "--limits-new-groups",
                "0",
            ]);
            command.args([
                "--max-ttl",
                &format!("{}ms", MAX_TTL.as_millis()),
                "--brake-share",
                "1.0",
            ]);
            command.arg("--data-dir").arg(data);
            command.args(url.map(|url| format!("--store={url}")));
            if let Some(ledger) = &ledger {
                let url = format!("--ledger=postgres://{}@{}/postgres", postgres::USER, ledger.addr());
                command.args([&url, "--roster-reconcile-interval", "5s"]);
            }
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
            ledger,
            disk,
            data: data.context("no directory")?,
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
        self.data.join("tenure.db")
    }
}

/// What the daemons keep everything in.
#[derive(Debug)]
pub enum Store {
    /// The daemon itself.
    Embedded,
    /// One Valkey.
    Server(Box<Server>),
    /// A primary with replicas.
    Sentinels(Sentinels),
    /// Three primaries with a replica each, which does not take over.
    Cluster(Cluster),
}

/// How often sentinels talk to each other. They demote a former primary after four of these.
pub const PUBLISH_PERIOD: Duration = Duration::from_millis(250);
/// How long a node of a cluster is away before its replica takes over: longer than any fault.
const NODE_TIMEOUT: Duration = Duration::from_secs(120);

impl Store {
    fn start(kind: Kind) -> Result<Self> {
        let missing = "valkey-server is not installed";
        Ok(match kind {
            Kind::Sqlite => Store::Embedded,
            Kind::Valkey | Kind::Ledger => {
                Store::Server(Box::new(Server::with(Flavour::Valkey, DURABLE).context(missing)?))
            }
            Kind::Sentinel => {
                let sentinels = Sentinels::with(Flavour::Valkey, DURABLE, "").context(missing)?;
                sentinels.set_publish_period(PUBLISH_PERIOD);
                Store::Sentinels(sentinels)
            }
            Kind::Cluster => {
                let cluster = Cluster::behind_proxies(Flavour::Valkey, DURABLE).context(missing)?;
                cluster.set_node_timeout(NODE_TIMEOUT);
                Store::Cluster(cluster)
            }
        })
    }

    /// Its processes.
    #[must_use]
    pub fn processes(&self) -> Vec<&Process> {
        match self {
            Store::Embedded => Vec::new(),
            Store::Server(server) => vec![server.process()],
            Store::Cluster(cluster) => cluster.nodes().iter().map(Server::process).collect(),
            Store::Sentinels(all) => {
                let servers = all.servers().iter().map(Server::process);
                servers.chain(all.sentinels().iter().map(Sentinel::process)).collect()
            }
        }
    }
}

/// The processes.
#[derive(Debug)]
pub struct World {
    /// What it is.
    pub kind: Kind,
    /// The daemons.
    pub daemons: Vec<Daemon>,
    /// The store.
    pub store: Store,
    /// The ledger, if it is a server.
    pub ledger: Option<postgres::Server>,
}

impl World {
    /// Starts everything. The word of an operator ends the wait of the new store.
    ///
    /// # Errors
    /// If a program is missing or does not start.
    pub fn start(kind: Kind, tenure: &Path, planted: Option<&str>) -> Result<Self> {
        let store = Store::start(kind)?;
        let ledger = match kind {
            Kind::Ledger => Some(postgres::Server::start().context("postgres is not installed")?),
            _ => None,
        };
        let launch = |_| Daemon::launch(tenure, &store, ledger.as_ref(), planted);
        let daemons: Result<Vec<_>> = (0..kind.daemons()).map(launch).collect();
        let world = Self {
            kind,
            daemons: daemons?,
            store,
            ledger,
        };
        let (status, said) = http::request(world.daemons[0].addr(), "POST", "/v1/settle", "")?;
        ensure!(status == 200, "the store is not settled: {status} {said}");
        Ok(world)
    }

    /// The daemon with a number, which may be above theirs.
    #[must_use]
    pub fn daemon(&self, at: usize) -> &Daemon {
        &self.daemons[at % self.daemons.len()]
    }

    /// The one server of the store.
    ///
    /// # Errors
    /// If it is not one server.
    pub fn server(&self) -> Result<&Server> {
        match &self.store {
            Store::Server(server) => Ok(server.as_ref()),
            _ => bail!("the world {} has no single server", self.kind.name()),
        }
    }

    /// The groups that clients act in: in a cluster the one with a number is on the primary with it.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        let Store::Cluster(cluster) = &self.store else {
            return vec!["robust".to_owned()];
        };
        let (mut groups, mut next) = (Vec::new(), 0);
        while groups.len() < self.daemons.len() {
            let group = format!("robust-{next}");
            let slot = usize::from(cluster.slot_of(&format!("{{tenure:{group}}}")));
            if slot * self.daemons.len() / SLOTS == groups.len() {
                groups.push(group);
            }
            next += 1;
        }
        groups
    }

    /// A node of the cluster, and the way to it.
    ///
    /// # Errors
    /// If the store has none.
    pub fn node(&self, at: usize) -> Result<(&Server, &Proxy)> {
        match &self.store {
            Store::Cluster(cluster) => Ok((&cluster.nodes()[at], &cluster.proxies()[at])),
            _ => bail!("the world {} has no nodes", self.kind.name()),
        }
    }

    /// The servers and the sentinels that watch them.
    ///
    /// # Errors
    /// If the world has none.
    pub fn sentinels(&self) -> Result<&Sentinels> {
        match &self.store {
            Store::Sentinels(sentinels) => Ok(sentinels),
            _ => bail!("the world {} has no sentinels", self.kind.name()),
        }
    }

    /// The ledger.
    ///
    /// # Errors
    /// If the world has none.
    pub fn ledger(&self) -> Result<&postgres::Server> {
        self.ledger.as_ref().context("no ledger")
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
        if let Some(ledger) = &self.ledger {
            fs::write(folder.join("ledger.log"), ledger.process().log())?;
        }
        for (n, process) in self.store.processes().iter().enumerate() {
            fs::write(folder.join(format!("store-{n}.log")), process.log())?;
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
