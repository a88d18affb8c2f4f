//! The nodes of a cluster: a link to each, the map of their slots, and what becomes of calls that reach the wrong one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::Health;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::link::Link;
use super::options::{ConnectionOptions, Need};
use super::slots::SlotMap;
use crate::address::{Address, Endpoint};
use crate::classify::Redirection;

/// While all is well the map is asked for once in this many ping intervals.
const IDLE: u32 = 10;
/// The map is not asked for more often than this.
const FLOOR: Duration = Duration::from_millis(50);
/// How soon to try again when a slot is on its way.
const RETRY: Duration = Duration::from_millis(100);

/// The nodes of a cluster, and the map of their slots.
pub(super) struct Nodes {
    pub(super) address: Address,
    seeds: Vec<Endpoint>,
    pub(super) options: ConnectionOptions,
    needs: Vec<Need>,
    pub(super) clock: Arc<dyn Clock>,
    runtime: Handle,
    lives: Arc<AtomicU64>,
    turn: AtomicU64,
    state: RwLock<State>,
    stale: Notify,
    pub(super) tried: watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) map: SlotMap,
    pub(super) links: HashMap<Endpoint, Link>,
    /// Why nobody tells the map.
    pub(super) trouble: Option<(ErrorKind, String)>,
    pub(super) closed: bool,
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

impl Nodes {
    /// Links to the seeds, and no map yet.
    pub(super) fn new(
        address: Address,
        seeds: Vec<Endpoint>,
        options: ConnectionOptions,
        needs: Vec<Need>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let nodes = Self {
            address,
            seeds,
            options,
            needs,
            clock,
            runtime,
            lives: Arc::default(),
            turn: AtomicU64::new(0),
            state: RwLock::default(),
            stale: Notify::new(),
            tried: watch::Sender::new(false),
        };
        for seed in &nodes.seeds {
            nodes.link(seed);
        }
        nodes
    }

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn link_of(&self, slot: u16) -> Result<Link> {
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

    pub(super) fn give_up(&self) -> Mono {
        self.clock.mono() + self.options.request_timeout
    }

    /// Whether a call that failed is to be sent to another node: it is when this answers `Ok`.
    pub(super) fn redirect(&self, slot: u16, error: Error, give_up: Mono) -> Result<()> {
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
    pub(super) fn last(&self, slot: u16, error: Error) -> Error {
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
            let error = match told {
                Ok(map) if !map.nodes().is_empty() => return Ok(map),
                Ok(_) => Error::unavailable(format!("{node} knows of no slots"), Outcome::Unchanged),
                Err(error) => error,
            };
            // What somebody has to mend is told, and not that another node is not connected yet.
            if last.is_unavailable() {
                last = error;
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
pub(super) async fn refresh(nodes: Arc<Nodes>) {
    for seed in &nodes.seeds {
        if let Some(link) = nodes.link(seed) {
            link.first_try().await;
            if link.health() == Health::Up {
                break;
            }
        }
    }
    while !nodes.read().closed {
        match nodes.ask_for_map().await {
            Ok(map) => nodes.take(map),
            Err(error) => {
                tracing::debug!(error = error.chain(), "no node tells the cluster's slots");
                nodes.write().trouble = Some((error.kind(), error.chain()));
            }
        }
        if !*nodes.tried.borrow() {
            let links: Vec<Link> = nodes.read().links.values().cloned().collect();
            for link in links {
                link.first_try().await;
            }
            nodes.tried.send_replace(true);
        }
        nodes.clock.sleep(FLOOR).await;
        let patience = match nodes.is_well() {
            true => nodes.options.ping_interval * IDLE,
            false => nodes.options.ping_interval / 4,
        };
        // Either way it is time: what woke us does not matter.
        let _ = within(&*nodes.clock, patience, nodes.stale.notified()).await;
    }
}
