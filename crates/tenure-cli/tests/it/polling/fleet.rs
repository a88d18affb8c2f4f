//! Real processes of the example, and the store that they share.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, wait};

use crate::polling::endpoints::Endpoints;
use crate::support::{Daemon, run, tenure};

pub(crate) const TARGETS: usize = 300;
pub(crate) const TTL: Duration = Duration::from_secs(5);
/// Three hundred targets are six hundred polls a second, which two busy cores can do.
const EVERY: Duration = Duration::from_millis(500);
const GROUP: &str = "pollers";
/// How long a fleet may take to come to rest: joining, acquiring, and connecting again after an outage.
const REST: Duration = Duration::from_secs(60);

/// The store.
pub(crate) enum Backend {
    Daemon(Daemon),
    Valkey(Server),
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Daemon(_) => "over a daemon",
            Self::Valkey(_) => "over Valkey",
        })
    }
}

impl Backend {
    pub(crate) fn daemon() -> Self {
        Self::Daemon(Daemon::start(&[]))
    }

    /// A server that has served for long: one that may have lost its data would grant nothing for the longest ttl. `None`
    /// where the server is not installed.
    pub(crate) fn valkey() -> Option<Self> {
        let server = Server::start(Flavour::Valkey)?;
        server
            .cli(&["HSET", "tenure:store", "born", "1"])
            .expect("an old marker");
        Some(Self::Valkey(server))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self {
            Self::Daemon(daemon) => daemon.addr,
            Self::Valkey(server) => server.addr(),
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Daemon(_) => "http",
            Self::Valkey(_) => "valkey",
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.addr())
    }

    /// How often the store has noticed a gap, after which every ttl restarts and no lease is free before it ends.
    #[track_caller]
    pub(crate) fn silences(&self) -> u32 {
        let mut page = serde_json::Value::Null;
        wait::until("the store tells its events", REST, || {
            let mut command = tenure();
            command.args(["events", "--group", GROUP, "--type", "group_unsettled", "--json"]);
            command.args(["--last", "1000", "--store", &self.url()]);
            page = serde_json::from_str(&run(command).out).unwrap_or_default();
            page.is_object()
        });
        let events = page["events"].as_array().expect("events").iter();
        let silent = events.filter(|event| event["reason"] == "silent").count();
        u32::try_from(silent).expect("a few")
    }

    /// The current tenure of a member, if it has one that is alive.
    pub(crate) fn tenure_of(&self, member: &str) -> Option<String> {
        let mut command = tenure();
        command.args(["members", member, "--group", GROUP, "--json", "--store", &self.url()]);
        let ran = run(command);
        let seen: serde_json::Value = serde_json::from_str(&ran.out).ok()?;
        let alive = seen["alive"] == true;
        seen["tenure"].as_str().filter(|_| alive).map(str::to_owned)
    }
}

/// One process of the fleet.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) process: Process,
}

pub(crate) struct Fleet {
    pub(crate) endpoints: Endpoints,
    store: String,
    nodes: Vec<Node>,
}

impl Fleet {
    /// Starts nodes that reach the store at this URL.
    #[track_caller]
    pub(crate) fn start(store: &str, nodes: usize) -> Self {
        let mut fleet = Self {
            endpoints: Endpoints::start(),
            store: store.to_owned(),
            nodes: Vec::new(),
        };
        for n in 1..=nodes {
            fleet.add(&format!("node-{n}"));
        }
        wait::until("every node polls something", REST, || {
            let lately = fleet.endpoints.lately(EVERY * 4);
            let polls = |node: &Node| lately.values().flatten().any(|(by, _)| *by == node.name);
            fleet.nodes.iter().all(polls)
        });
        fleet.settle();
        fleet
    }

    #[track_caller]
    fn add(&mut self, name: &str) {
        let url = format!("http://{}/{name}/{{}}", self.endpoints.addr);
        let process = Process::spawn(name, |_| {
            let mut command = Command::new(example());
            command.args(["--store", &self.store, "--url", &url, "--group", GROUP, "--node", name]);
            command.args([
                "--targets",
                &TARGETS.to_string(),
                "--ttl",
                &in_ms(TTL),
                "--every",
                &in_ms(EVERY),
            ]);
            command
        });
        let process = process.expect("the example can be started");
        self.nodes.push(Node {
            name: name.to_owned(),
            process,
        });
    }

    /// Waits until every target is polled by exactly one node.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let (began, mut last) = (Instant::now(), None);
        wait::until("every target is polled by one node", REST, || {
            let trouble = self.trouble();
            let kind = trouble.as_ref().map(|(kind, _)| *kind);
            if kind != last {
                eprintln!("{:?}: {trouble:?}", began.elapsed());
                last = kind;
            }
            trouble.is_none()
        });
    }

    /// What is not as it should be, and how much of it.
    fn trouble(&self) -> Option<(&'static str, usize)> {
        for node in &self.nodes {
            assert!(
                node.process.is_running(),
                "{} ended: {}",
                node.name,
                node.process.log_tail()
            );
        }
        let lately = self.endpoints.lately(EVERY * 4);
        let idle = TARGETS - lately.len();
        let moved = lately.values().filter(|by| by.len() != 1).count();
        let counted = [("targets are not polled", idle), ("targets have just moved", moved)];
        counted.into_iter().find(|(_, count)| *count > 0)
    }

    /// Takes the node out that polls the most targets, with them and their tokens.
    #[track_caller]
    pub(crate) fn busiest(&mut self) -> (Node, BTreeMap<String, u64>) {
        let lately = self.endpoints.lately(EVERY * 4);
        let of = |name: &str| -> BTreeMap<String, u64> {
            let polls = lately
                .iter()
                .flat_map(|(target, by)| by.iter().map(move |by| (target, by)));
            let its = polls.filter(|(_, (node, _))| node == name);
            its.map(|(target, (_, token))| (target.clone(), *token)).collect()
        };
        let (at, its) = (0..self.nodes.len())
            .map(|at| (at, of(&self.nodes[at].name)))
            .max_by_key(|(_, its)| its.len())
            .expect("there are nodes");
        let shares: Vec<_> = self.nodes.iter().map(|node| of(&node.name).len()).collect();
        eprintln!("the nodes poll {shares:?} targets");
        (self.nodes.remove(at), its)
    }

    /// Waits until all these targets are polled under higher tokens; answers how long the last one took.
    #[track_caller]
    pub(crate) fn moved(&self, its: &BTreeMap<String, u64>, since: Instant) -> Duration {
        wait::until("others poll all its targets", REST, || {
            self.endpoints.first_above(its).len() == its.len()
        });
        let first = self.endpoints.first_above(its);
        let last = first.values().max().expect("it polled something");
        last.saturating_duration_since(since)
    }
}

fn in_ms(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// The example, built once.
pub(crate) fn example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| crate::example::example("polling_fleet"))
}
