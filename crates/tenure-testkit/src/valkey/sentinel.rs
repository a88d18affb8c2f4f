//! A primary with two replicas, watched by three sentinels.

pub mod fake;
pub mod tls;

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Flavour, START, Server};
use crate::port::Port;
use crate::program::have;
use crate::resp::{Client, Reply};
use crate::server::{Process, must};
use crate::wait;

const PATIENCE: Duration = Duration::from_secs(60);

/// The sentinels' name of the primary.
pub const NAME: &str = "main";

/// The configuration of a sentinel.
fn conf(port: u16, watched: u16, settings: &str) -> String {
    // A sentinel stalls while it writes its file, up to a second on a slow disk. This must not mark a server as down.
    format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {watched} 2\n\
         sentinel down-after-milliseconds {NAME} 3000\nsentinel failover-timeout {NAME} 5000\n{settings}\n"
    )
}

/// One sentinel.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    process: Process,
    password: Option<String>,
}

impl Sentinel {
    fn launch(flavour: Flavour, watched: u16, settings: &str) -> Result<Sentinel> {
        let program = have(flavour.program()).or_skip().context("the server is gone")?;
        let port = Port::reserve();
        let conf = conf(port.number(), watched, settings);
        let process = Process::spawn("sentinel", |dir| {
            // It stores what it learns in its own configuration file; a failed write shows at the start.
            let _ = fs::write(dir.join("sentinel.conf"), conf);
            let mut command = Command::new(program);
            command.current_dir(dir).args(["sentinel.conf", "--sentinel"]);
            command
        })?;
        let password = settings.lines().find_map(|line| line.strip_prefix("requirepass "));
        let sentinel = Sentinel {
            port,
            process,
            password: password.map(str::to_owned),
        };
        sentinel.get_ready()?;
        Ok(sentinel)
    }

    fn get_ready(&self) -> Result<()> {
        self.process.wait_ready(START, || {
            let reply = self.cli(&["PING"])?;
            ensure!(
                reply == Reply::Simple("PONG".to_owned()),
                "PING was answered with {reply:?}"
            );
            Ok(())
        })?;
        // It polls the servers more often than every ten seconds, and a two-second stall of the machine does not
        // suspend its decisions for half a minute.
        self.debug("info-period", Duration::from_secs(1))?;
        self.debug("tilt-trigger", Duration::from_secs(60))
    }

    /// Restarts it with its state, and waits until it answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn restart(&self) -> Result<()> {
        self.process.restart()?;
        self.get_ready()
    }

    /// Restarts it without its state, to watch another primary.
    fn restart_without_state(&self, watched: u16) -> Result<()> {
        fs::write(
            self.process.dir().join("sentinel.conf"),
            conf(self.port.number(), watched, ""),
        )?;
        self.restart()
    }

    /// Sets an interval that has no regular setting.
    fn debug(&self, what: &str, time: Duration) -> Result<()> {
        let reply = self.cli(&["SENTINEL", "DEBUG", what, &time.as_millis().to_string()])?;
        ensure!(
            reply == Reply::Simple("OK".to_owned()),
            "SENTINEL DEBUG {what} was answered with {reply:?}"
        );
        Ok(())
    }

    /// Sends one command.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn cli(&self, args: &[&str]) -> Result<Reply> {
        let mut client = Client::connect(self.port.addr())?;
        if let Some(password) = &self.password {
            client.call(&["AUTH", password])?;
        }
        client.call(args)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port of the primary that it names.
    fn named_primary(&self) -> Option<u16> {
        let told = self.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        told.texts().get(1)?.parse().ok()
    }
}

/// The servers and the sentinels; dropping it stops them all.
#[derive(Debug)]
pub struct Sentinels {
    flavour: Flavour,
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// Starts the servers and sentinels, with additional settings for the sentinels, one per line. Prints a message and
    /// returns `None` if the server is not installed.
    ///
    /// # Panics
    /// If they do not find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, settings: &str) -> Option<Sentinels> {
        Sentinels::with(flavour, &[], settings)
    }

    /// Like [`Sentinels::start`], with additional settings for the servers, as those of [`Server::with`].
    ///
    /// # Panics
    /// As [`Sentinels::start`].
    #[must_use]
    #[track_caller]
    pub fn with(flavour: Flavour, servers: &[&str], settings: &str) -> Option<Sentinels> {
        let server = |_| Server::with(flavour, servers);
        let servers: Vec<Server> = (0..3).map(server).collect::<Option<_>>()?;
        for replica in &servers[1..] {
            replica.replica_of(&servers[0]);
        }
        let launch = |_| must(Sentinel::launch(flavour, servers[0].port(), settings));
        let sentinels: Vec<Sentinel> = (0..3).map(launch).collect();
        let all = Sentinels {
            flavour,
            servers,
            sentinels,
        };
        wait::until("the sentinels know each other and the replicas", PATIENCE, || {
            all.sentinels.iter().all(sees_all)
        });
        Some(all)
    }

    /// `valkey-sentinel://127.0.0.1:PORT,…/main`, or `redis-sentinel://…`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&[0, 1, 2])
    }

    /// The URL with some of the sentinels, in the given order.
    ///
    /// # Panics
    /// If a number is out of range.
    #[must_use]
    pub fn url_of(&self, which: &[usize]) -> String {
        let at: Vec<_> = which.iter().map(|n| self.sentinels[*n].port.addr()).collect();
        url_of(self.flavour, &at)
    }

    /// The servers; the first is the initial primary.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// The primary that the first answering sentinel names.
    ///
    /// # Panics
    /// If none answers.
    #[must_use]
    #[track_caller]
    pub fn primary(&self) -> &Server {
        let named = self.sentinels.iter().find_map(Sentinel::named_primary);
        let named = named.expect("a sentinel names the primary");
        let found = self.servers.iter().find(|server| server.port() == named);
        found.expect("it is one of ours")
    }

    /// Waits until all three sentinels name another primary.
    ///
    /// # Panics
    /// After a minute: if no two agree on a leader, they retry after ten seconds.
    #[track_caller]
    pub fn until_not(&self, before: &Server) {
        wait::until("the sentinels name another primary", PATIENCE, || {
            self.sentinels
                .iter()
                .all(|one| one.named_primary().is_some_and(|named| named != before.port()))
        });
    }

    /// Redeploys the sentinels, without their state and at epoch 0, around a replica that becomes the primary. The
    /// former primary keeps running.
    ///
    /// # Panics
    /// If one does not start.
    #[track_caller]
    pub fn redeploy(&self, primary: &Server) {
        for sentinel in &self.sentinels {
            sentinel.process.kill();
        }
        primary.promote();
        for sentinel in &self.sentinels {
            must(sentinel.restart_without_state(primary.port()));
        }
    }

    /// Sets the interval at which the sentinels exchange their state (initially 2 s). They publish a new primary
    /// immediately. They tolerate a server in the wrong role as a primary for four intervals.
    ///
    /// # Panics
    /// If one refuses.
    #[track_caller]
    pub fn set_publish_period(&self, period: Duration) {
        for sentinel in &self.sentinels {
            must(sentinel.debug("publish-period", period));
        }
    }

    /// Breaks the replicas' links to their primary, and keeps them from following it until [`Sentinels::join_replicas`].
    ///
    /// # Panics
    /// If one refuses.
    #[track_caller]
    pub fn cut_replicas(&self, primary: &Server) {
        for replica in self.servers.iter().filter(|server| server.port() != primary.port()) {
            // The primary has no password, so it refuses a replica that sends one.
            must(replica.expect_ok(&["CONFIG", "SET", "masterauth", "wrong"]));
            must(replica.cli(&["CLIENT", "KILL", "TYPE", "master"]).map(drop));
        }
    }

    /// Lets all servers that run follow their primary again.
    pub fn join_replicas(&self) {
        for server in &self.servers {
            let _ = server.cli(&["CONFIG", "SET", "masterauth", ""]);
        }
    }

    /// Waits until the primary has two replicas and the sentinels know. A sentinel that still takes a replica for a
    /// primary would demote it again, even after a promotion.
    ///
    /// # Panics
    /// After a minute.
    #[track_caller]
    pub fn until_whole(&self) {
        wait::until("the primary has two replicas again", PATIENCE, || {
            let info = self.primary().cli(&["INFO", "replication"]);
            let online = info.map(|info| info.text().matches("state=online").count());
            online.is_ok_and(|online| online == 2) && self.sentinels.iter().all(sees_all)
        });
    }
}

fn url_of(flavour: Flavour, at: &[SocketAddr]) -> String {
    let at: Vec<String> = at.iter().map(SocketAddr::to_string).collect();
    format!("{}-sentinel://{}/{NAME}", flavour.scheme(), at.join(","))
}

fn sees_all(sentinel: &Sentinel) -> bool {
    let ask = |what| sentinel.cli(&["SENTINEL", what, NAME]);
    let (Ok(primary), Ok(replicas)) = (ask("MASTER"), ask("REPLICAS")) else {
        return false;
    };
    let is = |of: &Reply, name: &str, value: &str| {
        let told = of.texts();
        let at = told.iter().position(|field| field == name);
        at.and_then(|at| told.get(at + 1)).is_some_and(|told| told == value)
    };
    is(&primary, "num-other-sentinels", "2")
        && is(&primary, "flags", "master")
        && replicas.items().len() == 2
        && replicas
            .items()
            .iter()
            .all(|replica| is(replica, "flags", "slave") && is(replica, "role-reported", "slave"))
}
