//! What the story plays in: a daemon on a file that is thrown away, the processes of the fleet, and the devices and clients
//! that connect to them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tempfile::TempDir;
use tenure::http::{HttpSettings, RemoteRoster, RemoteRosters};
use tenure::{Clock, LeaseName, ProviderId, RosterName, SystemClock, Tenure};
use tenure_core::id::Group;
use tenure_core::ledger::{ProviderSpec, SettingsPatch};
use tenure_core::store::Call;
use tenure_core::target::TargetSpec;
use tenure_core::time::show_duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::endpoints::Endpoints;
use super::part::{DESK, POLLERS, Role};
use crate::process::Process;

/// The ttl of every member and provider.
pub(super) const TTL: Duration = Duration::from_secs(3);
/// The grace of a session.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Retries of a refused device or client, and the pause before each.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

pub(super) const GATEWAYS: [&str; 3] = ["gw-1", "gw-2", "gw-3"];
pub(super) const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
pub(super) const FRONTS: [&str; 2] = ["front-1", "front-2"];
pub(super) const PROVIDERS: [&str; 3] = ["petra", "quinn", "rosa"];
pub(super) const TARGETS: usize = 12;
pub(super) const DEVICES_EACH: usize = 4;
/// Two hosts with many members: when the larger one dies, the brake engages.
pub(super) const SWARMS: [(&str, usize); 2] = [("host-a", 8), ("host-b", 4)];

/// A client of the chat.
#[derive(Debug)]
pub(super) struct Client {
    /// The outcome of its attach.
    pub(super) how: String,
    /// In which room it is.
    pub(super) room: String,
    /// The connection lasts as long as this.
    _socket: BufReader<TcpStream>,
}

/// Everything there is.
pub(super) struct Fleet {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tenure: Tenure,
    pub(super) roster: RemoteRoster,
    pub(super) endpoints: Endpoints,
    pub(super) daemon: Process,
    parts: BTreeMap<String, Process>,
    /// Device -> its gateway and its socket.
    devices: BTreeMap<String, (String, BufReader<TcpStream>)>,
    pub(super) clients: BTreeMap<String, Client>,
    url: String,
    dir: TempDir,
    starts: u32,
}

impl Fleet {
    /// Starts the daemon and nothing else.
    pub(super) async fn open(listen: SocketAddr) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let dir = TempDir::with_prefix("tenure-demo-").context("no temporary directory can be made")?;
        let data = dir.path().join("data");
        let (listen, grace) = (listen.to_string(), show_duration(GRACE));
        let args = [
            "serve",
            "--max-ttl",
            "10s",
            "--limits-request-timeout",
            "2s",
            "--sessions-grace",
            &grace,
            "--listen",
            &listen,
            "--data-dir",
        ];
        let mut args: Vec<OsString> = args.map(Into::into).into();
        args.push(data.into());
        let daemon = Process::start(&*clock, args, &dir.path().join("daemon.log"), None).await?;
        let url = daemon.said.clone();
        let tenure = super::connected(&url).await?;
        // It is new: no lease was held.
        tenure.store().settle(None, None, Call::default()).await?;
        let rosters = RemoteRosters::new(&url, Arc::clone(&clock), Handle::current(), HttpSettings::default())?;
        Ok(Self {
            roster: rosters.roster(&RosterName::new(DESK)?),
            endpoints: Endpoints::start(&clock).await?,
            clock,
            tenure,
            daemon,
            parts: BTreeMap::new(),
            devices: BTreeMap::new(),
            clients: BTreeMap::new(),
            url,
            dir,
            starts: 0,
        })
    }

    /// The URL of the dashboard.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The temporary directory of the demo.
    pub(super) fn directory(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// The ids of all processes.
    pub(super) fn pids(&self) -> Vec<i32> {
        let parts = self.parts.values().map(Process::pid);
        parts.chain([self.daemon.pid()]).collect()
    }

    /// Brings the whole fleet up.
    pub(super) async fn populate(&mut self) -> anyhow::Result<()> {
        let group = Group::new(POLLERS)?;
        for nth in 1..=TARGETS {
            let target = LeaseName::new(format!("endpoint-{nth}"))?;
            let (spec, call) = (TargetSpec::default(), Call::default());
            self.tenure.store().put_target(&group, &target, spec, call).await?;
        }
        let settings = SettingsPatch {
            stale_after: Some(TTL),
            snapshot: Some(Duration::from_secs(1)),
            ..SettingsPatch::default()
        };
        self.roster.set_settings(&settings).await?;
        for name in PROVIDERS {
            let provider = ProviderId::new(name)?;
            self.roster.put_provider(&provider, &ProviderSpec::default()).await?;
            self.roster.activate(&provider).await?;
            self.start(Role::Phone, name).await?;
        }
        for name in NODES {
            self.start(Role::Poller, name).await?;
        }
        for (host, gateway) in GATEWAYS.iter().enumerate() {
            self.start(Role::Gateway, gateway).await?;
            for nth in 1..=DEVICES_EACH {
                self.plug(&format!("cam-{}", host * DEVICES_EACH + nth), gateway)
                    .await?;
            }
        }
        for name in FRONTS {
            self.start(Role::Front, name).await?;
        }
        for (session, front) in [
            ("ann", "front-2"),
            ("ben", "front-2"),
            ("cleo", "front-2"),
            ("dora", "front-1"),
        ] {
            self.enter(session, "lobby", front).await?;
        }
        for (name, _) in SWARMS {
            self.start(Role::Swarm, name).await?;
        }
        Ok(())
    }

    /// Starts a process of the fleet; one of the same name is forgotten, and so ends if it has not.
    pub(super) async fn start(&mut self, role: Role, name: &str) -> anyhow::Result<i32> {
        let started = self.another(role, name).await?;
        let pid = started.pid();
        self.parts.insert(name.to_owned(), started);
        Ok(pid)
    }

    /// Starts a process beside the one that there may be of that name.
    pub(super) async fn another(&mut self, role: Role, name: &str) -> anyhow::Result<Process> {
        self.starts += 1;
        let log = self.dir.path().join(format!("{name}.{}.log", self.starts));
        let ttl = show_duration(TTL);
        let mut args: Vec<OsString> = vec!["demo-part".into(), "--role".into(), role.as_str().into()];
        args.extend(["--name", name, "--store", &self.url, "--ttl", &ttl].map(Into::into));
        args.extend(["--endpoints".into(), self.endpoints.address().to_string().into()]);
        if let Some((_, members)) = SWARMS.iter().find(|(host, _)| *host == name) {
            args.extend(["--members".into(), members.to_string().into()]);
        }
        Process::start(&*self.clock, args, &log, None).await
    }

    /// A process of the fleet.
    pub(super) fn part(&mut self, name: &str) -> anyhow::Result<&mut Process> {
        self.parts.get_mut(name).with_context(|| format!("{name} is not there"))
    }

    /// Takes a process out of the fleet's list, to do with it what the story says.
    pub(super) fn take(&mut self, name: &str) -> anyhow::Result<Process> {
        self.parts.remove(name).with_context(|| format!("{name} is not there"))
    }

    /// Puts a process into the fleet's list.
    pub(super) fn put(&mut self, name: &str, process: Process) {
        self.parts.insert(name.to_owned(), process);
    }

    /// A device connects to a gateway, wherever it was before.
    pub(super) async fn plug(&mut self, device: &str, gateway: &str) -> anyhow::Result<()> {
        let address = self.part(gateway)?.said.clone();
        let (socket, _) = greet(&*self.clock, &address, device).await?;
        self.devices.insert(device.to_owned(), (gateway.to_owned(), socket));
        Ok(())
    }

    /// The devices that are connected to a gateway, in order. They are not any more.
    pub(super) fn unplug(&mut self, gateway: &str) -> Vec<String> {
        let here = self.devices.iter().filter(|(_, (at, _))| at == gateway);
        let names: Vec<String> = here.map(|(device, _)| device.clone()).collect();
        for name in &names {
            self.devices.remove(name);
        }
        names
    }

    /// A client connects to a front-end; without a room it is where it was.
    pub(super) async fn enter(&mut self, session: &str, room: &str, front: &str) -> anyhow::Result<()> {
        let address = self.part(front)?.said.clone();
        let (socket, answer) = greet(&*self.clock, &address, &format!("{session} {room}")).await?;
        let (how, room) = answer.split_once(' ').unwrap_or((&answer, "-"));
        let client = Client {
            how: how.to_owned(),
            room: room.to_owned(),
            _socket: socket,
        };
        self.clients.insert(session.to_owned(), client);
        Ok(())
    }

    /// Ends everything, the daemon last, and leaves nothing behind.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        drop((self.devices, self.clients));
        let clock = &*self.clock;
        // Concurrently, so that they do not wait for each other.
        self.parts.values().for_each(|part| part.signal(Signal::TERM));
        for part in self.parts.into_values() {
            part.stop(clock).await;
        }
        self.tenure.close().await;
        self.daemon.stop(clock).await;
        self.dir.close().context("the temporary directory cannot be removed")
    }
}

/// Connects, says a line, and answers the socket with what came back. Who is refused comes again: the store may have been too
/// slow for once.
async fn greet(clock: &dyn Clock, address: &str, hello: &str) -> anyhow::Result<(BufReader<TcpStream>, String)> {
    for _ in 0..TRIES {
        match greet_once(address, hello).await {
            Err(_) => clock.sleep(PAUSE).await,
            welcome => return welcome,
        }
    }
    greet_once(address, hello).await
}

async fn greet_once(address: &str, hello: &str) -> anyhow::Result<(BufReader<TcpStream>, String)> {
    let mut socket = BufReader::new(TcpStream::connect(address).await?);
    socket.write_all(format!("{}\n", hello.trim()).as_bytes()).await?;
    let mut answer = String::new();
    socket.read_line(&mut answer).await?;
    anyhow::ensure!(!answer.is_empty(), "{hello:?} was refused");
    Ok((socket, answer.trim().to_owned()))
}
