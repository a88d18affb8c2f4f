//! ZooKeeper: a session with an ephemeral node for each member, on a connection of its own, kept by pings.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tenure_testkit::port::Port;
use tenure_testkit::{Availability, Process, have};
use tokio::task::JoinSet;

use super::jute;
use super::peer::{Holder, Locks, Peer, share};
use crate::load::{Connection, Lane};
use crate::machine::ZOOKEEPER_JAR;
use crate::subject::member;

const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const START: Duration = Duration::from_secs(45);
/// The time-out of a question whether it has started.
const PROBE: Duration = Duration::from_secs(1);
/// Concurrent joins.
const JOINERS: usize = 64;
/// The longest time-out that the server agrees to by default.
const LONGEST: Duration = Duration::from_secs(40);
const ROOT: &str = "/members";

pub(super) struct ZooKeeper {
    port: Port,
    process: Process,
    /// The sessions of members whose heartbeats are not sent yet.
    sessions: Mutex<Vec<Option<Connection>>>,
    ttl: Duration,
}

impl ZooKeeper {
    pub(super) async fn start(ttl: Duration) -> Result<Option<Self>> {
        let Availability::Found(java) = have("java") else {
            return Ok(None);
        };
        if !Path::new(ZOOKEEPER_JAR).is_file() {
            return Ok(None);
        }
        let zookeeper = tokio::task::spawn_blocking(move || Self::launch(&java, ttl)).await??;
        Ok(Some(zookeeper))
    }

    /// With the settings of the example that comes with it, but for the limit of connections from one address.
    fn launch(java: &Path, ttl: Duration) -> Result<Self> {
        let port = Port::reserve();
        let mut written = Ok(());
        let process = Process::spawn("zookeeper", |dir| {
            let file = dir.join("zoo.cfg");
            let settings = format!(
                "tickTime=2000\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={}\nmaxClientCnxns=0\n",
                dir.join("data").display(),
                port.number()
            );
            written = fs::write(&file, settings + "admin.enableServer=false\n");
            let mut command = Command::new(java);
            command.current_dir(dir).args(["-cp", ZOOKEEPER_JAR, MAIN]).arg(file);
            command
        })?;
        written.context("write ZooKeeper's settings")?;
        process.wait_ready(START, || {
            let mut stream = TcpStream::connect(port.addr())?;
            // A server that is about to start accepts, and may never answer.
            stream.set_read_timeout(Some(PROBE))?;
            stream.write_all(b"srvr")?;
            let mut status = String::new();
            stream.read_to_string(&mut status)?;
            ensure!(status.contains("Mode:"), "not ready: {status}");
            Ok(())
        })?;
        let sessions = Mutex::default();
        Ok(Self {
            port,
            process,
            sessions,
            ttl: ttl.min(LONGEST),
        })
    }
}

/// A new session, with the time-out that it asks for.
async fn session(addr: SocketAddr, timeout: Duration) -> Result<Connection> {
    let mut connection = Connection::connect(addr).await?;
    let agreed = connection.exchange(&jute::connect(timeout), jute::connected).await?;
    ensure!(agreed == timeout, "the server agreed to {agreed:?}, not to {timeout:?}");
    Ok(connection)
}

/// Creates a node; false if there is one.
async fn create(connection: &mut Connection, path: &str, ephemeral: bool) -> Result<bool> {
    let request = jute::create(1, path, ephemeral);
    let answer = connection.exchange(&request, |bytes| jute::answer_of(bytes, 1)).await?;
    answer.created()
}

#[async_trait]
impl Peer for ZooKeeper {
    fn processes(&self) -> Result<Vec<u32>> {
        Ok(vec![self.process.pid().context("ZooKeeper has ended")?])
    }

    async fn join(&self, members: usize) -> Result<()> {
        let addr = self.port.addr();
        create(&mut session(addr, LONGEST).await?, ROOT, false).await?;
        let mut joined = Vec::new();
        for numbers in (0..members).collect::<Vec<_>>().chunks(JOINERS) {
            let mut tasks = JoinSet::new();
            for number in numbers.iter().copied() {
                let mut connection = session(addr, self.ttl).await?;
                tasks.spawn(async move {
                    let created = create(&mut connection, &format!("{ROOT}/{}", member(number)), true).await?;
                    ensure!(created, "a member exists already");
                    Ok((number, connection))
                });
            }
            while let Some(done) = tasks.join_next().await {
                joined.push(done.context("a joining task")??);
            }
        }
        joined.sort_by_key(|(number, _)| *number);
        let sessions = joined.into_iter().map(|(_, connection)| Some(connection)).collect();
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = sessions;
        Ok(())
    }

    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = |lane| {
            let taken = share(members.clone(), lane, lanes).map(|number| sessions[number].take());
            let connections: Option<Vec<Connection>> = taken.collect();
            let connections = connections.context("a session that is used already")?;
            Ok(Lane::new(
                connections,
                [jute::ping()].into(),
                0..,
                Arc::new(jute::pinged),
            ))
        };
        (0..lanes).map(lane).collect()
    }

    async fn alive(&self) -> Result<usize> {
        let mut connection = session(self.port.addr(), LONGEST).await?;
        let children = jute::children(1, ROOT);
        let answer = connection
            .exchange(&children, |bytes| jute::answer_of(bytes, 1))
            .await?;
        ensure!(answer.error == 0, "error {}", answer.error);
        usize::try_from(answer.count).context("a number of children")
    }

    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        vec![("", Arc::new(Nodes(self.port.addr())))]
    }
}

/// Ephemeral nodes.
struct Nodes(SocketAddr);

#[async_trait]
impl Locks for Nodes {
    fn shortest(&self) -> Duration {
        Duration::from_secs(4)
    }

    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>> {
        let mut connection = session(self.0, ttl).await?;
        ensure!(
            create(&mut connection, &format!("/{lock}"), true).await?,
            "the lock is not free"
        );
        Ok(Box::new(SessionHolder(connection)))
    }

    /// A watch until the node is deleted, then a node of its own.
    async fn wait(&self, lock: &str) -> Result<Instant> {
        let mut connection = session(self.0, LONGEST).await?;
        let (path, xid) = (format!("/{lock}"), 2);
        let watch = jute::exists(xid, &path);
        let answer = connection.exchange(&watch, |bytes| jute::answer_of(bytes, xid)).await?;
        ensure!(answer.error == 0, "the lock is free");
        connection.exchange_within(LONGEST, &[], jute::notified).await?;
        ensure!(create(&mut connection, &path, true).await?, "another client was faster");
        Ok(Instant::now())
    }
}

/// Dropped, it closes its socket and not its session, as the kernel does for a killed process.
struct SessionHolder(Connection);

#[async_trait]
impl Holder for SessionHolder {
    async fn renew(&mut self) -> Result<()> {
        let parse = |bytes: &[u8]| Ok(jute::pinged(bytes)?.map(|reply| (reply.size, reply.bad)));
        let bad = self.0.exchange(&jute::ping(), parse).await?;
        ensure!(bad.is_none(), "the holder's ping: {bad:?}");
        Ok(())
    }
}
