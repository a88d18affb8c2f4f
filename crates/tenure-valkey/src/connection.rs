//! The connection to a store: one server, the primary that sentinels name, or the nodes of a cluster.
//!
//! [`Connection`] also serves code beside the store that works on the keys of another program. It runs that code's own
//! atomic scripts (a [`Script`], called with an [`Invocation`], its reply read by a [`Reader`]) and plain reads.
//! `tenure-adopt` is built on it.
//!
//! A single server (or the primary that sentinels name) gets a `Link`: a supervised multiplexed connection that fails
//! fast, queues nothing and replays nothing. A cluster gets a link to each primary and a slot map; see `cluster`.
//!
//! This module does not know groups, members or any other Tenure concept. It carries scripts and commands.

mod cluster;
mod greeting;
mod link;
mod live;
mod nodes;
mod options;
mod sentinel;
mod slots;
mod subscription;
mod supervisor;
mod wait_connection;
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
pub(crate) use options::{Mark, Need, Needs};
pub(crate) use subscription::Subscription;

/// A server with the keys that it has for itself: the one server of a store, or a primary of a cluster.
#[derive(Clone)]
pub(crate) struct Node {
    /// Empty for the one server.
    pub(crate) name: String,
    link: Link,
    /// On a cluster.
    pub(crate) tag: Option<Arc<str>>,
}

/// A handle to a supervised connection. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Connection {
    links: Links,
}

#[derive(Clone)]
enum Links {
    One(Link),
    Cluster(Cluster),
}

impl Connection {
    /// Opens a connection to one server or to the primary that sentinels name. It connects in the background and
    /// reconnects on its own. It must be called on a tokio runtime with I/O and time; that runtime runs the connection.
    ///
    /// A single server may be a replica: code that works on other programs' keys checks the role itself. A store
    /// requires a primary.
    ///
    /// # Errors
    /// `Unsupported` for the URL of a cluster, `Misconfigured` for an invalid URL. An unreachable server is not an
    /// error here: calls fail until it is reachable.
    pub fn open(url: &str, options: ConnectionOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        let address = Address::parse(url)?.of_any_role();
        let opened = Self::open_at(address, options, |_| Needs::default(), clock)?;
        match opened.links {
            Links::One(_) => Ok(opened),
            Links::Cluster(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "this works on one server at a time; name one node of the cluster with valkey:// or redis://",
            )),
        }
    }

    /// Opens the connection of a store, which may be a cluster; `needs` receives which. A single server must be a
    /// primary.
    pub(crate) fn open_any(
        url: &str,
        options: ConnectionOptions,
        needs: impl FnOnce(bool) -> Needs,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_at(Address::parse(url)?, options, needs, clock)
    }

    fn open_at(
        address: Address,
        options: ConnectionOptions,
        needs: impl FnOnce(bool) -> Needs,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(
                ErrorKind::Misconfigured,
                "a Valkey store must be opened on a tokio runtime",
            )
            .because(error)
        })?;
        let mut needs = needs(matches!(address.servers(), Servers::Cluster(_)));
        if address.wait().is_some() {
            needs.commands.push(Need {
                command: "WAIT",
                key: "1",
            });
        }
        let links = match address.servers() {
            Servers::Cluster(seeds) => {
                let seeds = seeds.clone();
                Links::Cluster(Cluster::start(address, seeds, options, needs, clock, runtime))
            }
            Servers::One(_) | Servers::Sentinels(_) => {
                Links::One(Link::start(address, options, needs, clock, runtime, Arc::default()))
            }
        };
        Ok(Self { links })
    }

    /// Whether this is a cluster, where the keys of one step must share a hash tag.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.links, Links::Cluster(_))
    }

    /// A connection to each primary.
    pub(crate) fn primaries(&self) -> Vec<Self> {
        match &self.links {
            Links::One(_) => vec![self.clone()],
            Links::Cluster(cluster) => {
                let one = |link| Self {
                    links: Links::One(link),
                };
                cluster.primaries().into_iter().map(one).collect()
            }
        }
    }

    /// The servers that each have a pulse and an index of due groups.
    pub(crate) fn each_node(&self) -> Vec<Node> {
        match &self.links {
            Links::One(link) => vec![Node {
                name: String::new(),
                link: link.clone(),
                tag: None,
            }],
            Links::Cluster(cluster) => {
                let node = |(name, link, tag)| Node {
                    name,
                    link,
                    tag: Some(tag),
                };
                cluster.tagged().into_iter().map(node).collect()
            }
        }
    }

    /// [`Connection::call`] on one server, for the keys that it has for itself.
    pub(crate) async fn call_node<T>(
        &self,
        node: &Node,
        script: &Arc<Script>,
        invocation: Invocation,
        read: impl FnOnce(&mut Reader, StoreTime) -> Read<T>,
    ) -> Result<T> {
        let invocation = invocation.tagged(node.tag.clone());
        let answer = match &self.links {
            Links::One(link) => link.call_script(script, invocation).await?,
            Links::Cluster(cluster) => cluster.call_node(&node.link, script, invocation).await?,
        };
        Link::open(script, answer, read)
    }

    /// The primaries of a cluster by name; empty for a single server.
    pub(crate) fn nodes(&self) -> Vec<String> {
        match &self.links {
            Links::One(_) => Vec::new(),
            Links::Cluster(cluster) => cluster.names(),
        }
    }

    /// The name of the primary of a cluster that has a key.
    pub(crate) fn node_of(&self, key: &str) -> Option<String> {
        match &self.links {
            Links::One(_) => None,
            Links::Cluster(cluster) => cluster.name_of(key.as_bytes()),
        }
    }

    /// How many slots of a cluster have no node; 0 for a single server.
    pub(crate) fn uncovered(&self) -> usize {
        match &self.links {
            Links::One(_) => 0,
            Links::Cluster(cluster) => cluster.uncovered(),
        }
    }

    /// The URL without its secrets.
    #[must_use]
    pub fn place(&self) -> &str {
        match &self.links {
            Links::One(link) => link.place(),
            Links::Cluster(cluster) => cluster.place(),
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn options(&self) -> &ConnectionOptions {
        match &self.links {
            Links::One(link) => link.options(),
            Links::Cluster(cluster) => cluster.options(),
        }
    }

    /// The timeout of one call. `None` where a call may go to two nodes in turn or waits for replicas.
    pub(crate) fn answers_within(&self) -> Option<Duration> {
        match &self.links {
            Links::One(link) => link.answers_within(),
            Links::Cluster(_) => None,
        }
    }

    /// The clock used for timeouts.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        match &self.links {
            Links::One(link) => link.clock(),
            Links::Cluster(cluster) => cluster.clock(),
        }
    }

    /// Whether it is connected and the server replied recently. No I/O.
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.links {
            Links::One(link) => link.health(),
            Links::Cluster(cluster) => cluster.health(),
        }
    }

    /// The kind of error that calls fail with while it is down. No I/O.
    pub(crate) fn why_down(&self) -> Option<ErrorKind> {
        match &self.links {
            Links::One(link) => link.why_down(),
            Links::Cluster(cluster) => cluster.why_down(),
        }
    }

    /// Closes the connection and stops reconnecting. Later calls fail with `Unavailable`.
    pub fn close(&self) {
        match &self.links {
            Links::One(link) => link.close(),
            Links::Cluster(cluster) => cluster.close(),
        }
    }

    /// Waits until the connection is up or has failed for the first time; at most the connect timeout.
    pub async fn first_try(&self) {
        match &self.links {
            Links::One(link) => link.first_try().await,
            Links::Cluster(cluster) => cluster.first_try().await,
        }
    }

    /// Calls a script and reads the part of its reply after nonce and time. `read` also receives the store's time.
    ///
    /// # Errors
    /// `TooLate` when the script refused a late call (nothing changed). `Unavailable` with outcome `Unchanged` when the
    /// call was not sent or was refused, and `Unknown` when its reply was lost, malformed or late. `Denied`,
    /// `Misconfigured`, `Internal`.
    pub async fn call<T>(
        &self,
        script: &Arc<Script>,
        invocation: Invocation,
        read: impl FnOnce(&mut Reader, StoreTime) -> Read<T>,
    ) -> Result<T> {
        let answer = match &self.links {
            Links::One(link) => link.call_script(script, invocation).await?,
            Links::Cluster(cluster) => cluster.call_script(script, invocation).await?,
        };
        Link::open(script, answer, read)
    }

    /// Sends one plain command, given by its words, and reads its reply. For reads and idempotent writes, which need no
    /// script. Never for a single mutation of state that other processes decide by.
    ///
    /// # Errors
    /// Those of [`Connection::call`], without `TooLate`. `Unsupported` on a cluster, where a command must be routed by
    /// a key.
    pub async fn ask<T>(&self, words: &[&[u8]], read: impl FnOnce(&mut Reader) -> Read<T>) -> Result<T> {
        let mut cmd = Cmd::new();
        for word in words {
            cmd.arg(*word);
        }
        let mut reply = Reader::of(self.command(cmd).await?);
        read(&mut reply).map_err(|malformed| {
            Error::unavailable("the store's reply is malformed", Outcome::Unchanged).because(malformed)
        })
    }

    /// The same, returning the raw reply.
    pub(crate) async fn command(&self, cmd: Cmd) -> Result<Value> {
        match &self.links {
            Links::One(link) => link.command(cmd).await,
            Links::Cluster(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "a command without a key cannot be routed in a cluster",
            )),
        }
    }

    /// The same, routed to the node of a key.
    pub(crate) async fn command_on(&self, key: &str, cmd: Cmd) -> Result<Value> {
        match &self.links {
            Links::One(link) => link.command(cmd).await,
            Links::Cluster(cluster) => cluster.command_on(key.as_bytes(), cmd).await,
        }
    }

    /// Reads the store's clock; in a cluster that of any reachable node. With a test clock: the time that the test set.
    ///
    /// # Errors
    /// Those of [`Connection::ask`].
    pub async fn time(&self) -> Result<StoreTime> {
        let cluster = match &self.links {
            Links::One(link) => return link.time().await,
            Links::Cluster(cluster) => cluster,
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

    /// The number of the current connection to the server, different for each reconnect. A cache of server state must
    /// be dropped when it changes. `None` while disconnected, and for a cluster.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        match &self.links {
            Links::One(link) => link.generation(),
            Links::Cluster(_) => None,
        }
    }

    /// The same for the server of a key.
    pub(crate) fn generation_of(&self, key: &str) -> Option<u64> {
        match &self.links {
            Links::One(link) => link.generation(),
            Links::Cluster(cluster) => cluster.link_of(key.as_bytes()).ok()?.generation(),
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
