//! The nodes of a cluster: a link to each, the slot map, and the handling of redirected calls.

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
use super::options::{ConnectionOptions, Needs};
use super::slots::SlotMap;
use crate::address::{Address, Endpoint};
use crate::classify::Redirection;

/// A healthy map is refreshed once in this many ping intervals.
const IDLE_PINGS: u32 = 10;
/// The shortest pause between two refreshes.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two refreshes without a change is a ping interval divided by this.
const MAX_PAUSE_DIVISOR: u32 = 2;
/// When to retry while a slot is being migrated.
const RETRY: Duration = Duration::from_millis(100);

/// The nodes of a cluster and the slot map.
pub(super) struct Nodes {
    pub(super) address: Address,
    seeds: Vec<Endpoint>,
    pub(super) options: ConnectionOptions,
    needs: Needs,
    pub(super) clock: Arc<dyn Clock>,
    runtime: Handle,
    generations: Arc<AtomicU64>,
    turn: AtomicU64,
    state: RwLock<NodesState>,
    stale: Notify,
    pub(super) tried: watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct NodesState {
    pub(super) map: SlotMap,
    pub(super) links: HashMap<Endpoint, Link>,
    /// Why the last refresh of the map failed.
    pub(super) map_error: Option<(ErrorKind, String)>,
    pub(super) closed: bool,
}

fn redirection(error: &Error) -> Option<&Redirection> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref())
}

/// The error for a slot in migration. Nothing was written.
fn slot_moving(redirected: &Error) -> Error {
    let why = redirection(redirected).map(ToString::to_string).unwrap_or_default();
    let message = "the group is being moved to another node of the cluster; try again";
    Error::unavailable(message, Outcome::Unchanged)
        .because(why)
        .with_retry_after(RETRY)
}

/// Whether a redirection names a usable host. An empty host means the node that replied; `?` is a node without a name.
fn is_named(to: &Endpoint) -> bool {
    !to.host.is_empty() && to.host != "?"
}

/// Whether a node reports that the cluster is down or a slot is not served, directly or through a script error.
fn says_cluster_is_down(error: &Error) -> bool {
    let words = std::error::Error::source(error).map(ToString::to_string);
    words.is_some_and(|words| words.starts_with("CLUSTERDOWN") || words.contains("cluster is down"))
}

impl Nodes {
    /// Opens links to the seeds, with an empty map.
    pub(super) fn new(
        address: Address,
        seeds: Vec<Endpoint>,
        options: ConnectionOptions,
        needs: Needs,
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
            generations: Arc::default(),
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

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, NodesState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, NodesState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn link_of(&self, slot: u16) -> Result<Link> {
        self.node_of(slot).map(|(link, _)| link)
    }

    /// The link to the node of a slot, and the tag of the keys that the node has for itself.
    pub(super) fn node_of(&self, slot: u16) -> Result<(Link, Option<Arc<str>>)> {
        let nodes = self.read();
        let node = nodes.map.node(slot);
        let link = node.and_then(|node| Some((nodes.links.get(node)?.clone(), nodes.map.tag_of(node))));
        link.ok_or_else(|| {
            self.stale.notify_one();
            let (kind, why) = match &nodes.map_error {
                Some((kind, why)) => (*kind, why.as_str()),
                None => (ErrorKind::Unavailable, "no node has it"),
            };
            let message = format!("no node of {} is known for slot {slot}: {why}", self.address.place());
            Error::new(kind, message).with_retry_after(RETRY)
        })
    }

    /// The link to a node; opens one if there is none.
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
                Arc::clone(&self.generations),
            )
        });
        Some(link.clone())
    }

    pub(super) fn give_up(&self) -> Mono {
        self.clock.mono() + self.options.request_timeout
    }

    /// Decides whether a failed call may be resent to another node: `Ok` means resend.
    pub(super) fn redirect(&self, slot: u16, error: Error, give_up: Mono) -> Result<()> {
        match redirection(&error) {
            Some(Redirection::Moved(to)) if is_named(to) && self.clock.mono() < give_up => {
                tracing::debug!(slot, %to, "a slot has moved");
                self.moved(slot, to);
                Ok(())
            }
            _ => Err(self.last(slot, error)),
        }
    }

    /// The error of a call that is not resent.
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
            return slot_moving(&error);
        }
        // Any other refusal says nothing about where the slot is.
        if self.is_away(slot) || says_cluster_is_down(&error) {
            self.stale.notify_one();
        }
        error
    }

    /// Whether the node of a slot is unknown or not connected.
    fn is_away(&self, slot: u16) -> bool {
        let nodes = self.read();
        let link = nodes.map.node(slot).and_then(|node| nodes.links.get(node));
        link.is_none_or(|link| link.health() != Health::Up)
    }

    fn moved(&self, slot: u16, to: &Endpoint) {
        self.stale.notify_one();
        if !is_named(to) {
            // The next map has the full address.
            return;
        }
        self.link(to);
        self.write().map.moved(slot, to.clone());
    }

    /// Installs a new map: opens links to new nodes and drops the links of nodes without slots. Returns whether the map
    /// changed.
    fn take(&self, map: SlotMap) -> bool {
        for node in map.nodes() {
            self.link(node);
        }
        let mut nodes = self.write();
        // A call that still waits for a reply of a dropped node holds its own handle.
        nodes
            .links
            .retain(|node, _| map.nodes().contains(node) || self.seeds.contains(node));
        let changed = nodes.map != map;
        if changed {
            tracing::info!(
                place = self.address.place(),
                primaries = map.nodes().len(),
                "new slot map of the cluster"
            );
        }
        (nodes.map, nodes.map_error) = (map, None);
        changed
    }

    /// Asks the nodes for the map, starting with another node each time.
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
            let map = link.command(cmd).await.and_then(|value| {
                SlotMap::read(value, &node).map_err(|malformed| {
                    Error::unavailable("a node's slot map is malformed", Outcome::Unchanged).because(malformed)
                })
            });
            let error = match map {
                Ok(map) if !map.nodes().is_empty() => return Ok(map),
                Ok(_) => Error::unavailable(format!("{node} has no slots"), Outcome::Unchanged),
                Err(error) => error,
            };
            // An error that needs an operator is more useful than a node that is not connected yet.
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

/// Refreshes the map until the cluster is closed: asks for it, then waits for a reason to ask again.
pub(super) async fn refresh(nodes: Arc<Nodes>) {
    for seed in &nodes.seeds {
        if let Some(link) = nodes.link(seed) {
            link.first_try().await;
            if link.health() == Health::Up {
                break;
            }
        }
    }
    let mut pause = MIN_PAUSE;
    while !nodes.read().closed {
        let changed = match nodes.ask_for_map().await {
            Ok(map) => nodes.take(map),
            Err(error) => {
                tracing::debug!(error = error.chain(), "no node returned the slot map");
                nodes.write().map_error = Some((error.kind(), error.chain()));
                false
            }
        };
        if !*nodes.tried.borrow() {
            let links: Vec<Link> = nodes.read().links.values().cloned().collect();
            for link in links {
                link.first_try().await;
            }
            nodes.tried.send_replace(true);
        }
        if changed {
            pause = MIN_PAUSE;
        }
        nodes.clock.sleep(jittered(&*nodes.clock, pause)).await;
        let well = nodes.is_well();
        let wait = match well {
            true => nodes.options.ping_interval * IDLE_PINGS,
            false => nodes.options.ping_interval / 4,
        };
        let asked_for = within(&*nodes.clock, wait, nodes.stale.notified()).await.is_some();
        pause = match well && !asked_for {
            true => MIN_PAUSE,
            // The cluster has no new map yet, and all its clients are asking at the same time.
            false => (pause * 2)
                .min(nodes.options.ping_interval / MAX_PAUSE_DIVISOR)
                .max(MIN_PAUSE),
        };
    }
}

/// A random pause between half and the whole, so clients that noticed together do not ask together.
fn jittered(clock: &dyn Clock, pause: Duration) -> Duration {
    let half = pause / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_nanos(clock.entropy() % nanos)
}

#[cfg(test)]
mod tests {
    use tenure_core::clock::ManualClock;

    use super::*;
    use crate::classify::RefusalClass;

    #[test]
    fn redirection_without_host_is_not_followed() {
        let named = |words| match Redirection::read(words) {
            Some(Redirection::Moved(to)) => is_named(&to),
            _ => panic!("{words}"),
        };
        assert!(named("MOVED 1 a:7") && named("MOVED 1 ::1:7"));
        assert!(!named("MOVED 1 :7") && !named("MOVED 1 ?:7"));
    }

    #[test]
    fn only_cluster_down_errors_refresh_the_map() {
        let down = |words: &str| says_cluster_is_down(&RefusalClass::RetryLater.into_error(words));
        assert!(down("CLUSTERDOWN Hash slot not served"));
        assert!(down(
            "ERR Script attempted to access keys while the cluster is down script: 5c"
        ));
        assert!(!down("OOM command not allowed when used memory > 'maxmemory'."));
        assert!(!down("NOREPLICAS Not enough good replicas to write."));
        assert!(!says_cluster_is_down(&Error::unavailable(
            "in flight",
            Outcome::Unchanged
        )));
    }

    #[test]
    fn pause_is_jittered_between_half_and_whole() {
        let clock = ManualClock::new(0, 3);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(&clock, MIN_PAUSE)).collect();
        assert!(drawn.iter().all(|pause| (MIN_PAUSE / 2..MIN_PAUSE).contains(pause)));
        assert!(
            drawn.iter().any(|pause| *pause < MIN_PAUSE * 6 / 10)
                && drawn.iter().any(|pause| *pause > MIN_PAUSE * 9 / 10)
        );
    }
}
