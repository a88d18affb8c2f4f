//! What every compared server does: members that send heartbeats, a reader's view of them, and a lock.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;

use super::{consul, etcd, redis, tenure, zookeeper};
use crate::load::Lane;
use crate::process::{cpu_seconds, resident_bytes};

/// A server to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tenure's daemon on its embedded file: what the others are compared with.
    Tenure,
    /// Tenure's daemon on Valkey.
    TenureValkey,
    Consul,
    Etcd,
    ZooKeeper,
    /// Keys with a time to live, as most libraries use them.
    Redis,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Tenure,
        Self::TenureValkey,
        Self::Consul,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Redis,
    ];

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tenure => "Tenure, embedded file",
            Self::TenureValkey => "Tenure on Valkey",
            Self::Consul => "Consul",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "ZooKeeper",
            Self::Redis => "Redis by hand",
        }
    }

    /// Starts a server without data, for members with this TTL; `None` if it is not installed.
    pub(super) async fn start(self, ttl: Duration) -> Result<Option<Box<dyn Peer>>> {
        fn boxed(peer: impl Peer + 'static) -> Box<dyn Peer> {
            Box::new(peer)
        }
        Ok(match self {
            Self::Tenure => Some(boxed(tenure::Daemons::start(None, ttl).await?)),
            Self::TenureValkey => tenure::Daemons::on_valkey(ttl).await?.map(boxed),
            Self::Consul => consul::Consul::start(ttl).await?.map(boxed),
            Self::Etcd => etcd::EtcdServer::start(ttl).await?.map(boxed),
            Self::ZooKeeper => zookeeper::ZooKeeper::start(ttl).await?.map(boxed),
            Self::Redis => redis::Redis::start(ttl).await?.map(boxed),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A running server.
#[async_trait]
pub(super) trait Peer: Send + Sync {
    /// The processes of the server.
    fn processes(&self) -> Result<Vec<u32>>;

    /// Registers this many members, numbered from 0. Once per server.
    async fn join(&self, members: usize) -> Result<()>;

    /// Lanes that send the heartbeats of some of the members, one in each request. Once per member.
    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>>;

    /// Other ways to send the heartbeats of all members.
    async fn other_ways(&self, _members: usize, _lanes: usize) -> Result<Vec<Way>> {
        Ok(Vec::new())
    }

    /// The number of members that a reader sees alive.
    async fn alive(&self) -> Result<usize>;

    /// Its kinds of locks, with what distinguishes them. The last one is the quickest.
    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        Vec::new()
    }
}

/// A way to send heartbeats.
pub(super) struct Way {
    pub(super) name: &'static str,
    /// Heartbeats in a request.
    pub(super) each: usize,
    pub(super) lanes: Vec<Lane>,
    /// A server of its own, if this way needs one.
    pub(super) server: Option<Box<dyn Peer>>,
}

impl Way {
    /// One heartbeat in a request.
    pub(super) fn single(name: &'static str, lanes: Vec<Lane>) -> Self {
        let (each, server) = (1, None);
        Self {
            name,
            each,
            lanes,
            server,
        }
    }

    /// Several heartbeats in a request.
    pub(super) fn batched(name: &'static str, each: usize, lanes: Vec<Lane>) -> Self {
        let server = None;
        Self {
            name,
            each,
            lanes,
            server,
        }
    }
}

/// Locks that end with their holder's lease.
#[async_trait]
pub(super) trait Locks: Send + Sync {
    /// The shortest time to live of a holder.
    fn shortest(&self) -> Duration {
        Duration::ZERO
    }

    /// How long after a holder's deadline another may hold the lock, at most.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// Acquires a free lock.
    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>>;

    /// Waits for a lock as usual clients do. Returns the time at which the waiter holds it.
    async fn wait(&self, lock: &str) -> Result<Instant>;
}

/// The holder of a lock. Dropping it is a kill: it sends nothing.
#[async_trait]
pub(super) trait Holder: Send {
    /// Sends a heartbeat.
    async fn renew(&mut self) -> Result<()>;
}

/// The CPU seconds of all processes of a server.
pub(super) fn cpu(peer: &dyn Peer) -> Result<f64> {
    peer.processes()?.into_iter().map(cpu_seconds).sum()
}

/// The resident memory of all processes of a server, in MiB.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 bytes")]
pub(super) fn resident_mib(peer: &dyn Peer) -> Result<f64> {
    let bytes: u64 = peer.processes()?.into_iter().map(resident_bytes).sum::<Result<u64>>()?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// The members of one of several lanes, which take turns.
pub(super) fn share(members: Range<usize>, lane: usize, lanes: usize) -> impl Iterator<Item = usize> {
    members.skip(lane).step_by(lanes)
}
