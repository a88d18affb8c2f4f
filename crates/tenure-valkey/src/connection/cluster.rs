//! A cluster: a link to each primary, and a map that tells which of them has a key's slot.
//!
//! Why not the cluster connection of the client library: it queues while it does not know where to send, sends again by
//! itself what a broken connection may have carried already, and waits for all shards when it learns a new map. The rules
//! here are those of a single server: fail at once while the node of a slot is away, queue nothing, replay nothing. A link
//! has them already, so that what is left is a map, and one thing that may be sent twice: a call that a node refused with
//! `MOVED`, because a refused call has changed nothing.
//!
//! A slot that is being moved (`ASK`) is out of service until it has moved. A step looks at many keys, also at such that
//! do not exist; the node that receives a slot reads what has not arrived yet as missing, and would decide on half of a
//! group. For the group it is a gap like any other.
//!
//! The map is asked for when the cluster is opened, whenever a node is out of reach or says `MOVED`, and else now and
//! then. Nodes are asked in turn, so that one that was cut off and tells an old map is not believed for long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::Health;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::link::{Answer, Link};
use super::options::{ConnectionOptions, Need};
use super::slots::{SlotMap, slot_of};
use crate::address::{Address, Endpoint};
use crate::classify::Redirection;
use crate::script::{Invocation, Script};

/// How often a call may be sent on to another node: once for an old map, once more for a slot that has just moved again.
const REDIRECTIONS: usize = 2;
/// While all is well the map is asked for once in this many ping intervals.
const IDLE: u32 = 10;
/// The map is not asked for more often than this.
const FLOOR: Duration = Duration::from_millis(50);
/// How soon to try again when a slot is on its way.
const RETRY: Duration = Duration::from_millis(100);

/// The nodes of a cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Cluster {
    inner: Arc<Inner>,
    _refresher: Arc<AbortOnDrop>,
}

struct Inner {
    address: Address,
    seeds: Vec<Endpoint>,
    options: ConnectionOptions,
    needs: Vec<Need>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    lives: Arc<AtomicU64>,
    turn: AtomicU64,
    nodes: RwLock<Nodes>,
    stale: Notify,
    tried: watch::Sender<bool>,
}

#[derive(Default)]
struct Nodes {
    map: SlotMap,
    links: HashMap<Endpoint, Link>,
    /// Why nobody tells the map.
    trouble: Option<(ErrorKind, String)>,
    closed: bool,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Makes links to the seeds and goes on from there.
    pub(super) fn start(
        address: Address,
        seeds: Vec<Endpoint>,
        options: ConnectionOptions,
        needs: Vec<Need>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let inner = Arc::new(Inner {
            address,
            seeds,
            options,
            needs,
            clock,
            runtime: runtime.clone(),
            lives: Arc::default(),
            turn: AtomicU64::new(0),
            nodes: RwLock::default(),
            stale: Notify::new(),
            tried: watch::Sender::new(false),
        });
        for seed in &inner.seeds {
            inner.link(seed);
        }
        let refresher = runtime.spawn(refresh(Arc::clone(&inner))).abort_handle();
        Self {
            inner,
            _refresher: Arc::new(AbortOnDrop(refresher)),
        }
    }

    pub(super) fn place(&self) -> &str {
        self.inner.address.place()
    }

    pub(super) fn options(&self) -> &ConnectionOptions {
        &self.inner.options
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Waits until the map is known and its nodes were tried once, or the first attempt has failed.
    pub(super) async fn first_try(&self) {
        // An error means that there is nobody to wait for.
        let _ = self.inner.tried.subscribe().wait_for(|tried| *tried).await;
    }

    pub(super) fn close(&self) {
        let mut nodes = self.inner.write();
        nodes.closed = true;
        for link in nodes.links.values() {
            link.close();
        }
    }

    /// Up when every slot has a node that answers: a cluster that serves some groups and not others is not well.
    pub(super) fn health(&self) -> Health {
        let nodes = self.inner.read();
        if nodes.map.nodes().is_empty() {
            let why = nodes.trouble.as_ref().map_or("none was asked yet", |(_, why)| why);
            let reason = format!("no node tells its slots: {why}");
            return Health::Down { reason };
        }
        let away = nodes.map.nodes().iter().filter_map(|node| {
            let health = nodes.links.get(node).map(Link::health);
            match health {
                Some(Health::Up) => None,
                Some(Health::Down { reason }) => Some(format!("{node}: {reason}")),
                None => Some(format!("{node}: not connected yet")),
            }
        });
        let mut away: Vec<String> = away.collect();
        let uncovered = nodes.map.uncovered();
        if uncovered > 0 {
            away.push(format!("{uncovered} slots have no node"));
        }
        if away.is_empty() {
            return Health::Up;
        }
        let reason = format!("of {} primaries: {}", nodes.map.nodes().len(), away.join("; "));
        Health::Down { reason }
    }

    /// The kind of the error that is most in need of somebody to mend it.
    pub(super) fn why_down(&self) -> Option<ErrorKind> {
        let nodes = self.inner.read();
        let of_map = nodes.trouble.as_ref().map(|(kind, _)| *kind);
        let links = nodes
            .map
            .nodes()
            .iter()
            .filter_map(|node| nodes.links.get(node)?.why_down());
        let kinds: Vec<ErrorKind> = of_map.into_iter().chain(links).collect();
        let worst = kinds.iter().find(|kind| **kind != ErrorKind::Unavailable);
        worst.or(kinds.first()).copied()
    }

    /// The links to the primaries, in a fixed order.
    pub(super) fn primaries(&self) -> Vec<Link> {
        let nodes = self.inner.read();
        let mut primaries = nodes.map.nodes().to_vec();
        primaries.sort();
        primaries
            .iter()
            .filter_map(|node| nodes.links.get(node).cloned())
            .collect()
    }

    /// How many slots have no node.
    pub(super) fn uncovered(&self) -> usize {
        self.inner.read().map.uncovered()
    }

    /// The link to the node of a key.
    pub(super) fn link_of(&self, key: &[u8]) -> Result<Link> {
        self.inner.link_of(slot_of(key))
    }

    /// Calls a script where its first key is.
    pub(super) async fn ask(&self, script: &Arc<Script>, invocation: Invocation) -> Result<Answer> {
        let slot = slot_of(invocation.keys.first().map_or(&[], Vec::as_slice));
        let give_up = self.inner.give_up();
        for _ in 0..REDIRECTIONS {
            match self.inner.link_of(slot)?.ask(script, invocation.clone()).await {
                Err(error) => self.inner.redirect(slot, error, give_up)?,
                done => return done,
            }
        }
        let done = self.inner.link_of(slot)?.ask(script, invocation).await;
        done.map_err(|error| self.inner.last(slot, error))
    }

    /// Sends a command where a key is.
    pub(super) async fn command_on(&self, key: &[u8], cmd: Cmd) -> Result<Value> {
        let (slot, give_up) = (slot_of(key), self.inner.give_up());
        for _ in 0..REDIRECTIONS {
            match self.inner.link_of(slot)?.command(cmd.clone()).await {
                Err(error) => self.inner.redirect(slot, error, give_up)?,
                done => return done,
            }
        }
        let done = self.inner.link_of(slot)?.command(cmd).await;
        done.map_err(|error| self.inner.last(slot, error))
    }
}

fn redirection(error: &Error) -> Option<&Redirection> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref())
}

/// The error of a slot that is between two nodes. Nothing was written.
fn on_its_way(redirected: &Error) -> Error {
    let why = redirection(redirected).map(ToString::to_string).unwrap_or_default();
    let message = "the group is being moved to another node of the cluster; try again";
    Error::unavailable(message, Outcome::Unchanged)
        .because(why)
        .with_retry_after(RETRY)
}

impl Inner {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn link_of(&self, slot: u16) -> Result<Link> {
        let nodes = self.read();
        let link = nodes.map.node(slot).and_then(|node| nodes.links.get(node));
        link.cloned().ok_or_else(|| {
            self.stale.notify_one();
            let (kind, why) = match &nodes.trouble {
                Some((kind, why)) => (*kind, why.as_str()),
                None => (ErrorKind::Unavailable, "nobody has it"),
            };
            let message = format!("no node of {} is known for slot {slot}: {why}", self.address.place());
            Error::new(kind, message).with_retry_after(RETRY)
        })
    }

    /// The link to a node, made when there is none.
    fn link(&self, node: &Endpoint) -> Option<Link> {
        let mut nodes = self.write();
        if nodes.closed {
            return None;
        }
        let link = nodes.links.entry(node.clone()).or_insert_with(|| {
            Link::start(
                self.address.of_node(node),
                self.options.clone(),
                self.needs.clone(),
                Arc::clone(&self.clock),
                self.runtime.clone(),
                Arc::clone(&self.lives),
            )
        });
        Some(link.clone())
    }

    fn give_up(&self) -> Mono {
        self.clock.mono() + self.options.request_timeout
    }

    /// Whether a call that failed is to be sent to another node: it is when this answers `Ok`.
    fn redirect(&self, slot: u16, error: Error, give_up: Mono) -> Result<()> {
        match redirection(&error) {
            Some(Redirection::Moved(to)) if !to.host.is_empty() && self.clock.mono() < give_up => {
                tracing::debug!(slot, %to, "a slot has moved");
                self.moved(slot, to);
                Ok(())
            }
            _ => Err(self.last(slot, error)),
        }
    }

    /// The error of a call that is not sent again.
    fn last(&self, slot: u16, error: Error) -> Error {
        let redirected = match redirection(&error) {
            Some(Redirection::Moved(to)) => {
                self.moved(slot, to);
                true
            }
            Some(Redirection::Ask) => true,
            None => false,
        };
        if redirected {
            return on_its_way(&error);
        }
        if error.is_unavailable() {
            self.stale.notify_one();
        }
        error
    }

    fn moved(&self, slot: u16, to: &Endpoint) {
        self.stale.notify_one();
        if to.host.is_empty() {
            // It is where the node is that said so, which the next map tells in full.
            return;
        }
        self.link(to);
        self.write().map.moved(slot, to.clone());
    }

    /// Takes a new map: makes links to nodes that are new, and lets go of those that have no slot any more.
    fn take(&self, map: SlotMap) {
        for node in map.nodes() {
            self.link(node);
        }
        let mut nodes = self.write();
        // Whoever still waits for an answer from a node that is let go has a handle of its own.
        nodes
            .links
            .retain(|node, _| map.nodes().contains(node) || self.seeds.contains(node));
        if nodes.map != map {
            tracing::info!(
                place = self.address.place(),
                primaries = map.nodes().len(),
                "the cluster's slots"
            );
        }
        (nodes.map, nodes.trouble) = (map, None);
    }

    /// Asks one node for the map; those that answered last come later.
    async fn ask_for_map(&self) -> Result<SlotMap> {
        let mut links: Vec<(Endpoint, Link)> = {
            let nodes = self.read();
            nodes
                .links
                .iter()
                .map(|(node, link)| (node.clone(), link.clone()))
                .collect()
        };
        links.sort_by(|(a, _), (b, _)| a.cmp(b));
        let turn = usize::try_from(self.turn.fetch_add(1, Ordering::Relaxed)).unwrap_or_default();
        if !links.is_empty() {
            let start = turn % links.len();
            links.rotate_left(start);
        }
        let mut last = Error::unavailable("no node of the cluster is known", Outcome::Unchanged);
        for (node, link) in links {
            let mut cmd = redis::cmd("CLUSTER");
            cmd.arg("SLOTS");
            let told = link.command(cmd).await.and_then(|value| {
                SlotMap::read(value, &node).map_err(|malformed| {
                    Error::unavailable("a node's map of slots made no sense", Outcome::Unchanged).because(malformed)
                })
            });
            match told {
                Ok(map) if !map.nodes().is_empty() => return Ok(map),
                Ok(_) => last = Error::unavailable(format!("{node} knows of no slots"), Outcome::Unchanged),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn is_well(&self) -> bool {
        let nodes = self.read();
        let up = |node| nodes.links.get(node).is_some_and(|link| link.health() == Health::Up);
        nodes.map.uncovered() == 0 && nodes.map.nodes().iter().all(up)
    }
}

/// Keeps the map: asks for it, waits until there is a reason to ask again.
async fn refresh(inner: Arc<Inner>) {
    for seed in &inner.seeds {
        if let Some(link) = inner.link(seed) {
            link.first_try().await;
            if link.health() == Health::Up {
                break;
            }
        }
    }
    loop {
        match inner.ask_for_map().await {
            Ok(map) => inner.take(map),
            Err(error) => {
                tracing::debug!(error = error.chain(), "no node tells the cluster's slots");
                inner.write().trouble = Some((error.kind(), error.chain()));
            }
        }
        if !*inner.tried.borrow() {
            let links: Vec<Link> = inner.read().links.values().cloned().collect();
            for link in links {
                link.first_try().await;
            }
            inner.tried.send_replace(true);
        }
        inner.clock.sleep(FLOOR).await;
        let patience = match inner.is_well() {
            true => inner.options.ping_interval * IDLE,
            false => inner.options.ping_interval / 4,
        };
        // Either way it is time: what woke us does not matter.
        let _ = within(&*inner.clock, patience, inner.stale.notified()).await;
    }
}
