//! A cluster of three primaries with a replica each.

pub mod tls;

use std::time::{Duration, Instant};

use super::{Flavour, START, Server};
use crate::port::Port;
use crate::resp::Reply;
use crate::wait;

const PATIENCE: Duration = Duration::from_secs(60);
const PRIMARIES: usize = 3;
/// After how long nodes that do not know each other are introduced again.
const AGAIN: Duration = Duration::from_secs(5);

/// A running cluster of six nodes. Dropping it ends them all.
#[derive(Debug)]
pub struct Cluster {
    flavour: Flavour,
    nodes: Vec<Server>,
    buses: Vec<Port>,
}

impl Cluster {
    /// Starts one, with more settings for every node. `None`, after a loud word, when the server isn't installed.
    ///
    /// # Panics
    /// When the nodes don't find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, settings: &[&str]) -> Option<Cluster> {
        let buses: Vec<Port> = (0..2 * PRIMARIES).map(|_| Port::reserve()).collect();
        let node = |bus: &Port| {
            let bus = bus.number().to_string();
            let own = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1500",
            ];
            Server::with(flavour, &[&own, settings].concat())
        };
        let nodes: Vec<Server> = buses.iter().map(node).collect::<Option<_>>()?;
        for (at, node) in nodes.iter().enumerate() {
            run(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
        for (at, node) in nodes.iter().take(PRIMARIES).enumerate() {
            let (first, last) = (at * 16_384 / PRIMARIES, (at + 1) * 16_384 / PRIMARIES - 1);
            run(
                node,
                &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()],
            );
        }
        let cluster = Cluster { flavour, nodes, buses };
        introduce(&cluster.nodes.iter().collect::<Vec<_>>(), |n| {
            [cluster.nodes[n].port(), cluster.buses[n].number()]
        });
        for (at, replica) in cluster.nodes.iter().skip(PRIMARIES).enumerate() {
            let primary = id_of(&cluster.nodes[at]);
            // A node that has not heard of the primary yet says so.
            wait::until("the replica accepts its primary", START, || {
                replica
                    .cli(&["CLUSTER", "REPLICATE", &primary])
                    .is_ok_and(|reply| reply.text() == "OK")
            });
        }
        cluster.until_whole();
        Some(cluster)
    }

    /// `valkey-cluster://127.0.0.1:PORT,127.0.0.1:PORT`, or `redis-cluster://…`: two of the nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = self.flavour.scheme();
        format!("{scheme}-cluster://{},{}", self.nodes[0].addr(), self.nodes[4].addr())
    }

    /// The nodes; the first three were the primaries to begin with, and the replicas follow in their order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Which slot a key is in.
    ///
    /// # Panics
    /// When no node answers.
    #[must_use]
    #[track_caller]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self
            .nodes
            .iter()
            .find_map(|node| node.cli(&["CLUSTER", "KEYSLOT", key]).ok()?.int());
        slot.and_then(|slot| u16::try_from(slot).ok())
            .expect("a node tells a key's slot")
    }

    /// The primary that has a slot, as the node itself sees it; `None` while nobody has.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<&Server> {
        self.nodes.iter().find(|node| {
            let Ok(told) = node.cli(&["CLUSTER", "SLOTS"]) else {
                return false;
            };
            told.items().iter().any(|range| match range.items() {
                [first, last, primary, ..] => {
                    let at = primary.items().get(1).and_then(Reply::int);
                    first.int() <= Some(i64::from(slot))
                        && last.int() >= Some(i64::from(slot))
                        && at == Some(i64::from(node.port()))
                }
                _ => false,
            })
        })
    }

    /// Sends a command to the primary of a key.
    ///
    /// # Panics
    /// When nobody has its slot, or doesn't answer, or refuses.
    #[track_caller]
    pub fn run_on(&self, key: &str, args: &[&str]) {
        let owner = self.owner(self.slot_of(key)).expect("somebody has the slot");
        let reply = owner.cli(args).expect("the node answers");
        assert!(!matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
    }

    /// Waits until every slot has a primary that every node agrees on, and every replica follows one.
    ///
    /// # Panics
    /// When that takes more than a minute.
    #[track_caller]
    pub fn until_whole(&self) {
        wait::until("the cluster is whole", PATIENCE, || {
            self.nodes.iter().all(|node| {
                info(node, "cluster_state") == "ok"
                    && info(node, "cluster_slots_ok") == "16384"
                    && info(node, "cluster_size") == "3"
                    && node.cli(&["INFO", "replication"]).is_ok_and(|info| {
                        let info = info.text();
                        !info.contains("role:slave") || info.contains("master_link_status:up")
                    })
            })
        });
    }

    /// From now on a node is taken for dead after this long; until then after 1.5 s, so that the cluster forms soon.
    /// Whoever kills none asks for so long that a machine that stands still for a moment makes nobody take over.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn take_for_dead_after(&self, silence: Duration) {
        let silence = silence.as_millis().to_string();
        for node in &self.nodes {
            run(node, &["CONFIG", "SET", "cluster-node-timeout", &silence]);
        }
    }

    /// Begins to move a slot: `from` gives, `to` takes. Its keys stay where they are until [`Cluster::move_keys`].
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: &Server, to: &Server) {
        let slot = slot.to_string();
        run(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        run(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    }

    /// Moves up to `limit` keys of the slot; how many it moved.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: &Server, to: &Server, limit: usize) -> usize {
        let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &limit.to_string()]);
        let keys = keys.expect("the node answers").texts();
        for key in &keys {
            let port = to.port().to_string();
            let reply = from.cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            let reply = reply.expect("the node answers").text();
            // A key may have gone by itself.
            assert!(reply == "OK" || reply == "NOKEY", "MIGRATE {key}: {reply}");
        }
        keys.len()
    }

    /// Tells everyone that the slot is at its new place.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn end_move(&self, slot: u16, from: &Server, to: &Server) {
        let (slot, id) = (slot.to_string(), id_of(to));
        run(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        run(from, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }
}

#[track_caller]
fn run(node: &Server, args: &[&str]) {
    let reply = node.cli(args).expect("the node answers").text();
    assert_eq!(reply, "OK", "{args:?}");
}

#[track_caller]
fn id_of(node: &Server) -> String {
    node.cli(&["CLUSTER", "MYID"]).expect("the node answers").text()
}

/// Waits until nodes know each other, each of which is met at a port and its bus. A handshake that a standstill of the machine
/// has cost is made again: they forget it after the time for which a node may be silent.
#[track_caller]
fn introduce(nodes: &[&Server], at: impl Fn(usize) -> [u16; 2]) {
    let mut met: Option<Instant> = None;
    wait::until("the nodes know each other", PATIENCE, || {
        if nodes.iter().all(|node| knows(node, nodes.len())) {
            return true;
        }
        if met.is_none_or(|met| met.elapsed() > AGAIN) {
            met = Some(Instant::now());
            for other in 1..nodes.len() {
                let [port, bus] = at(other).map(|port| port.to_string());
                run(nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        false
    });
}

/// Whether a node knows so many, and none of them only by a handshake.
fn knows(node: &Server, count: usize) -> bool {
    let told = node.cli(&["CLUSTER", "NODES"]).map(|told| told.text());
    told.is_ok_and(|told| told.lines().count() == count && !told.contains("handshake"))
}

fn info(node: &Server, field: &str) -> String {
    let info = node
        .cli(&["CLUSTER", "INFO"])
        .map(|info| info.text())
        .unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    line.unwrap_or_default()
}
