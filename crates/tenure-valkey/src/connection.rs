//! The connection to a store: one server, the primary that sentinels name, or the nodes of a cluster.
//!
//! [`Connection`] is also for work beside the store, on keys of another program: atomic steps of one's own (a [`Script`],
//! called by an [`Invocation`], its reply taken apart by a [`Reader`]) and plain reads. `tenure-adopt` is made of these.
//!
//! To one server (also the one that sentinels name) it is a `Link`: a multiplexed connection under a supervisor that
//! fails fast, queues nothing and replays nothing. To a cluster it is a link to each primary and a map of slots; see
//! `cluster`.
//!
//! What it refuses to know: groups, members and everything else that is Tenure's. It carries scripts and commands.

mod cluster;
mod life;
mod link;
mod nodes;
mod options;
mod patient;
mod sentinel;
mod slots;
mod supervisor;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::Health;
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;

use crate::address::{Address, Servers};
use cluster::Cluster;
use link::Link;

pub use crate::reply::{Malformed, Read, Reader};
pub use crate::script::{Invocation, Lateness, Script};
pub use options::ConnectionOptions;
pub(crate) use options::Need;

/// A handle to a supervised connection. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Connection {
    to: To,
}

#[derive(Clone)]
enum To {
    One(Link),
    Cluster(Cluster),
}

impl Connection {
    /// Makes a connection to one server, or to the primary that sentinels name, that comes up by itself, now or whenever
    /// the server is there. Must be called on a tokio runtime with I/O and time, which it lives on from then on.
    ///
    /// A single server may be a replica: what works on other programs' keys asks for the role itself. A store does not
    /// work on one.
    ///
    /// # Errors
    /// Only for the URL: `Unsupported` for that of a cluster, `Misconfigured`. A server that is away is no error; calls
    /// fail until it is there.
    pub fn open(url: &str, options: ConnectionOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        let address = Address::parse(url)?.of_any_role();
        let opened = Self::open_at(address, options, |_| Vec::new(), clock)?;
        match opened.to {
            To::One(_) => Ok(opened),
            To::Cluster(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "this works on one server at a time; name one node of the cluster with valkey:// or redis://",
            )),
        }
    }

    /// The same for a store, also to a cluster; `needs` is told whether it is one. A single server has to be a primary.
    pub(crate) fn open_any(
        url: &str,
        options: ConnectionOptions,
        needs: impl FnOnce(bool) -> Vec<Need>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_at(Address::parse(url)?, options, needs, clock)
    }

    fn open_at(
        address: Address,
        options: ConnectionOptions,
        needs: impl FnOnce(bool) -> Vec<Need>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(
                ErrorKind::Misconfigured,
                "a store on Valkey has to be opened on a tokio runtime",
            )
            .because(error)
        })?;
        let mut needs = needs(matches!(address.servers(), Servers::Cluster(_)));
        if address.wait().is_some() {
            needs.push(Need {
                command: "WAIT",
                key: "1",
            });
        }
        let to = match address.servers() {
            Servers::Cluster(seeds) => {
                let seeds = seeds.clone();
                To::Cluster(Cluster::start(address, seeds, options, needs, clock, runtime))
            }
            Servers::One(_) | Servers::Sentinels(_) => {
                To::One(Link::start(address, options, needs, clock, runtime, Arc::default()))
            }
        };
        Ok(Self { to })
    }

    /// Whether it is to a cluster, where the keys of one step have to share a tag.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.to, To::Cluster(_))
    }

    /// A connection to each primary.
    pub(crate) fn primaries(&self) -> Vec<Self> {
        match &self.to {
            To::One(_) => vec![self.clone()],
            To::Cluster(cluster) => {
                let one = |link| Self { to: To::One(link) };
                cluster.primaries().into_iter().map(one).collect()
            }
        }
    }

    /// The primaries of a cluster by name; none of a single server.
    pub(crate) fn nodes(&self) -> Vec<String> {
        match &self.to {
            To::One(_) => Vec::new(),
            To::Cluster(cluster) => cluster.names(),
        }
    }

    /// The name of the primary of a cluster that has a key.
    pub(crate) fn node_of(&self, key: &str) -> Option<String> {
        match &self.to {
            To::One(_) => None,
            To::Cluster(cluster) => cluster.name_of(key.as_bytes()),
        }
    }

    /// How many of a cluster's slots have no node; none of a single server's.
    pub(crate) fn uncovered(&self) -> usize {
        match &self.to {
            To::One(_) => 0,
            To::Cluster(cluster) => cluster.uncovered(),
        }
    }

    /// The URL without its secrets.
    #[must_use]
    pub fn place(&self) -> &str {
        match &self.to {
            To::One(link) => link.place(),
            To::Cluster(cluster) => cluster.place(),
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn options(&self) -> &ConnectionOptions {
        match &self.to {
            To::One(link) => link.options(),
            To::Cluster(cluster) => cluster.options(),
        }
    }

    /// The time-out of one call. None is promised where a call may be sent to two nodes in turn, or replicas confirm it.
    pub(crate) fn answers_within(&self) -> Option<Duration> {
        match &self.to {
            To::One(link) => link.answers_within(),
            To::Cluster(_) => None,
        }
    }

    /// The clock it waits by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        match &self.to {
            To::One(link) => link.clock(),
            To::Cluster(cluster) => cluster.clock(),
        }
    }

    /// Whether it is connected and was answered lately. No I/O.
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.to {
            To::One(link) => link.health(),
            To::Cluster(cluster) => cluster.health(),
        }
    }

    /// What kind of error calls fail with while it is down. No I/O.
    pub(crate) fn why_down(&self) -> Option<ErrorKind> {
        match &self.to {
            To::One(link) => link.why_down(),
            To::Cluster(cluster) => cluster.why_down(),
        }
    }

    /// Lets go of the server and stops trying. Calls after it fail with `Unavailable`.
    pub fn close(&self) {
        match &self.to {
            To::One(link) => link.close(),
            To::Cluster(cluster) => cluster.close(),
        }
    }

    /// Waits until the connection is up or has failed for the first time; at most the connect timeout.
    pub async fn first_try(&self) {
        match &self.to {
            To::One(link) => link.first_try().await,
            To::Cluster(cluster) => cluster.first_try().await,
        }
    }

    /// Calls a script and reads what follows its nonce and time. The reading gets the store's time as well.
    ///
    /// # Errors
    /// `TooLate` when the script refused (nothing changed); `Unavailable` with the outcome `Unchanged` when it was not
    /// sent or refused, `Unknown` when its reply was lost, timed out or made no sense; `Denied`, `Misconfigured`,
    /// `Internal`.
    pub async fn call<T>(
        &self,
        script: &Arc<Script>,
        invocation: Invocation,
        read: impl FnOnce(&mut Reader, StoreTime) -> Read<T>,
    ) -> Result<T> {
        let answer = match &self.to {
            To::One(link) => link.ask(script, invocation).await?,
            To::Cluster(cluster) => cluster.ask(script, invocation).await?,
        };
        Link::open(script, answer, read)
    }

    /// Sends one plain command, given by its words, and reads its reply. For what needs no script: reads, and idempotent
    /// writes. Never a lone mutation of state that others decide by.
    ///
    /// # Errors
    /// Those of [`Connection::call`], without `TooLate`; `Unsupported` on a cluster, where a command needs a place.
    pub async fn ask<T>(&self, words: &[&[u8]], read: impl FnOnce(&mut Reader) -> Read<T>) -> Result<T> {
        let mut cmd = Cmd::new();
        for word in words {
            cmd.arg(*word);
        }
        let mut reply = Reader::of(self.command(cmd).await?);
        read(&mut reply).map_err(|malformed| {
            Error::unavailable("the store's reply made no sense", Outcome::Unchanged).because(malformed)
        })
    }

    /// The same without reading the reply.
    pub(crate) async fn command(&self, cmd: Cmd) -> Result<Value> {
        match &self.to {
            To::One(link) => link.command(cmd).await,
            To::Cluster(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "a command without a key has no place in a cluster",
            )),
        }
    }

    /// The same where a key is.
    pub(crate) async fn command_on(&self, key: &str, cmd: Cmd) -> Result<Value> {
        match &self.to {
            To::One(link) => link.command(cmd).await,
            To::Cluster(cluster) => cluster.command_on(key.as_bytes(), cmd).await,
        }
    }

    /// Asks the store's clock: in a cluster that of any node that answers. With a test's clock: what the test set last.
    ///
    /// # Errors
    /// Those of [`Connection::ask`].
    pub async fn time(&self) -> Result<StoreTime> {
        let cluster = match &self.to {
            To::One(link) => return link.time().await,
            To::Cluster(cluster) => cluster,
        };
        if cluster.options().on_test_clock() {
            return cluster.link_of(link::TEST_NOW.as_bytes())?.time().await;
        }
        let mut last = Error::unavailable("no node of the cluster is known", Outcome::Unchanged);
        for link in cluster.primaries() {
            match link.time().await {
                Err(error) if error.is_unavailable() => last = error,
                told => return told,
            }
        }
        Err(last)
    }

    /// A number that is another for every connection to the server: whoever remembers what the server holds has to
    /// forget it when this changes. `None` while there is none, and for a cluster.
    #[must_use]
    pub fn life(&self) -> Option<u64> {
        match &self.to {
            To::One(link) => link.life(),
            To::Cluster(_) => None,
        }
    }

    /// The same for the server that has a key.
    pub(crate) fn life_of(&self, key: &str) -> Option<u64> {
        match &self.to {
            To::One(link) => link.life(),
            To::Cluster(cluster) => cluster.link_of(key.as_bytes()).ok()?.life(),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("place", &self.place())
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
