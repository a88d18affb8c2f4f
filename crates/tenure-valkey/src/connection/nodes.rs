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
/// The longest pause between two askings that bring nothing new is a ping interval over this.
const OFTEN: u32 = 2;
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

/// Whether a redirection tells where. Without a host it is the host that said so, and `?` is a node that has no name.
fn is_named(to: &Endpoint) -> bool {
    !to.host.is_empty() && to.host != "?"
}

/// Whether a node says that the cluster does not serve, or not this slot: in its own words, or in those of a script.
fn says_cluster_is_down(error: &Error) -> bool {
    let words = std::error::Error::source(error).map(ToString::to_string);
    words.is_some_and(|words| words.starts_with("CLUSTERDOWN") || words.contains("cluster is down"))
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
            Some(Redirection::Moved(to)) if is_named(to) && self.clock.mono() < give_up => {
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
        // A node that refuses for a reason of its own is still where it was.
        if self.is_away(slot) || says_cluster_is_down(&error) {
            self.stale.notify_one();
        }
        error
    }

    /// Whether nobody is connected to the node of a slot.
    fn is_away(&self, slot: u16) -> bool {
        let nodes = self.read();
        let link = nodes.map.node(slot).and_then(|node| nodes.links.get(node));
        link.is_none_or(|link| link.health() != Health::Up)
    }

    fn moved(&self, slot: u16, to: &Endpoint) {
        self.stale.notify_one();
        if !is_named(to) {
            // The next map tells in full where it is.
            return;
        }
        self.link(to);
        self.write().map.moved(slot, to.clone());
    }

    /// Takes a new map: makes links to nodes that are new, and lets go of those that have no slot any more. Whether it is
    /// another than before.
    fn take(&self, map: SlotMap) -> bool {
        for node in map.nodes() {
            self.link(node);
        }
        let mut nodes = self.write();
        // Whoever still waits for an answer from a node that is let go has a handle of its own.
        nodes
            .links
            .retain(|node, _| map.nodes().contains(node) || self.seeds.contains(node));
        let news = nodes.map != map;
        if news {
            tracing::info!(
                place = self.address.place(),
                primaries = map.nodes().len(),
                "the cluster's slots"
            );
        }
        (nodes.map, nodes.trouble) = (map, None);
        news
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
    let mut pause = FLOOR;
    while !nodes.read().closed {
        let news = match nodes.ask_for_map().await {
            Ok(map) => nodes.take(map),
            Err(error) => {
                tracing::debug!(error = error.chain(), "no node tells the cluster's slots");
                nodes.write().trouble = Some((error.kind(), error.chain()));
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
        if news {
            pause = FLOOR;
        }
        nodes.clock.sleep(jittered(&*nodes.clock, pause)).await;
        let well = nodes.is_well();
        let patience = match well {
            true => nodes.options.ping_interval * IDLE,
            false => nodes.options.ping_interval / 4,
        };
        let asked_for = within(&*nodes.clock, patience, nodes.stale.notified()).await.is_some();
        pause = match well && !asked_for {
            true => FLOOR,
            // Whoever was asked knows no better yet; all processes ask, and all of them now.
            false => (pause * 2).min(nodes.options.ping_interval / OFTEN).max(FLOOR),
        };
    }
}

/// From half of a pause to the whole, so that those who noticed together do not ask together.
fn jittered(clock: &dyn Clock, pause: Duration) -> Duration {
    let half = pause / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_nanos(clock.entropy() % nanos)
}

#[cfg(test)]
mod tests {
    use tenure_core::clock::ManualClock;

    use super::*;
    use crate::classify::Verdict;

    #[test]
    fn a_redirection_to_nobody_is_followed_nowhere() {
        let named = |words| match Redirection::read(words) {
            Some(Redirection::Moved(to)) => is_named(&to),
            _ => panic!("{words}"),
        };
        assert!(named("MOVED 1 a:7") && named("MOVED 1 ::1:7"));
        assert!(!named("MOVED 1 :7") && !named("MOVED 1 ?:7"));
    }

    #[test]
    fn only_the_words_of_a_cluster_that_is_down_are_a_reason_to_ask() {
        let down = |words: &str| says_cluster_is_down(&Verdict::Later.into_error(words));
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
    fn a_pause_is_jittered_and_never_shorter_than_its_half() {
        let clock = ManualClock::new(0, 3);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(&clock, FLOOR)).collect();
        assert!(drawn.iter().all(|pause| (FLOOR / 2..FLOOR).contains(pause)));
        assert!(drawn.iter().any(|pause| *pause < FLOOR * 6 / 10) && drawn.iter().any(|pause| *pause > FLOOR * 9 / 10));
    }
}
