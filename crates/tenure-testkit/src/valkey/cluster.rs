//! A cluster of three primaries with one replica each.

pub mod tls;

use std::time::{Duration, Instant};

use super::{Flavour, START, Server};
use crate::port::Port;
use crate::proxy::Proxy;
use crate::resp::Reply;
use crate::wait;

const PATIENCE: Duration = Duration::from_secs(60);
const PRIMARIES: usize = 3;
/// The interval between introductions of nodes that do not know each other.
const AGAIN: Duration = Duration::from_secs(5);

/// A running cluster of six nodes; dropping it stops them all.
#[derive(Debug)]
pub struct Cluster {
    flavour: Flavour,
    nodes: Vec<Server>,
    buses: Vec<Port>,
    proxies: Vec<Proxy>,
}

impl Cluster {
    /// Starts a cluster, with additional settings for every node. Prints a message and returns `None` if the server is
    /// not installed.
    ///
    /// # Panics
    /// If the nodes do not find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, settings: &[&str]) -> Option<Cluster> {
        Cluster::launch(flavour, settings, false)
    }

    /// Like [`Cluster::start`], with a proxy before each node. Clients and replicas connect to it.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    #[must_use]
    #[track_caller]
    pub fn behind_proxies(flavour: Flavour, settings: &[&str]) -> Option<Cluster> {
        Cluster::launch(flavour, settings, true)
    }

    #[track_caller]
    fn launch(flavour: Flavour, settings: &[&str], has_proxies: bool) -> Option<Cluster> {
        let buses: Vec<Port> = (0..2 * PRIMARIES).map(|_| Port::reserve()).collect();
        let mut proxies = Vec::new();
        let mut node = |bus: &Port| {
            let proxy = has_proxies.then(|| Proxy::start(bus.addr()));
            let announced = proxy.as_ref().map(|proxy| proxy.port().to_string());
            let announced = announced.iter().flat_map(|port| ["--cluster-announce-port", port]);
            let bus = bus.number().to_string();
            let own = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1500",
            ];
            let announced: Vec<&str> = announced.collect();
            let node = Server::with(flavour, &[&own, &announced[..], settings].concat())?;
            proxies.extend(proxy.inspect(|proxy| proxy.redirect_to(node.addr())));
            Some(node)
        };
        let nodes: Vec<Server> = buses.iter().map(&mut node).collect::<Option<_>>()?;
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
        let cluster = Cluster {
            flavour,
            nodes,
            buses,
            proxies,
        };
        introduce(&cluster.nodes.iter().collect::<Vec<_>>(), |n| {
            [cluster.nodes[n].port(), cluster.buses[n].number()]
        });
        for (at, replica) in cluster.nodes.iter().skip(PRIMARIES).enumerate() {
            let primary = id_of(&cluster.nodes[at]);
            // A node that does not know the primary yet replies with an error.
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

    /// The nodes: first the three initial primaries, then their replicas in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The proxies before the nodes, in the same order, if it has any.
    #[must_use]
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// If no node answers.
    #[must_use]
    #[track_caller]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self
            .nodes
            .iter()
            .find_map(|node| node.cli(&["CLUSTER", "KEYSLOT", key]).ok()?.int());
        slot.and_then(|slot| u16::try_from(slot).ok())
            .expect("a node returns a key's slot")
    }

    /// The primary of a slot, as the node itself sees it; `None` while no node has it.
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
    /// If no node has its slot, or the primary does not answer or refuses.
    #[track_caller]
    pub fn run_on(&self, key: &str, args: &[&str]) {
        let owner = self.owner(self.slot_of(key)).expect("a node has the slot");
        let reply = owner.cli(args).expect("the node answers");
        assert!(!matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
    }

    /// Waits until every slot has a primary that all nodes agree on, and every replica follows one.
    ///
    /// # Panics
    /// After more than a minute.
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

    /// Sets the silence after which a node counts as failed. Initially it is 1.5 s, so that the cluster forms fast. A
    /// test that kills no node sets it so high that a short stall of the machine causes no failover.
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn set_node_timeout(&self, silence: Duration) {
        let silence = silence.as_millis().to_string();
        for node in &self.nodes {
            run(node, &["CONFIG", "SET", "cluster-node-timeout", &silence]);
        }
    }

    /// Begins to move a slot `from` one node `to` another. Its keys stay until [`Cluster::move_keys`].
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: &Server, to: &Server) {
        let slot = slot.to_string();
        run(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        run(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    }

    /// Moves up to `limit` keys of the slot. Returns how many it moved.
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: &Server, to: &Server, limit: usize) -> usize {
        let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &limit.to_string()]);
        let keys = keys.expect("the node answers").texts();
        for key in &keys {
            let port = to.port().to_string();
            let reply = from.cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            let reply = reply.expect("the node answers").text();
            // A key may have expired.
            assert!(reply == "OK" || reply == "NOKEY", "MIGRATE {key}: {reply}");
        }
        keys.len()
    }

    /// Announces the slot's new node to all nodes.
    ///
    /// # Panics
    /// If a node refuses.
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

/// Waits until all nodes know each other; `at` is the port and bus port of each. A handshake that failed during a stall
/// of the machine is repeated: nodes forget it after the node time-out.
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

/// Whether a node knows this many nodes and has finished all handshakes.
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
