//! The fleet in Python (`clients/python/examples/fleet.py`), against a real daemon: each target is polled by one node,
//! whichever node is killed, drained or cut off.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::{Mode, Process, Proxy, have, wait};

use crate::docs::root;
use crate::support::Daemon;

/// Interpreters start slowly on a busy machine, and a store that stood still gives everyone a full ttl.
const SLOW: Duration = Duration::from_secs(60);
const TARGETS: [&str; 6] = [
    "endpoint-1",
    "endpoint-2",
    "endpoint-3",
    "endpoint-4",
    "endpoint-5",
    "endpoint-6",
];

struct Node {
    process: Process,
    name: &'static str,
}

impl Node {
    #[track_caller]
    fn start(python: &Path, url: &str, name: &'static str, ttl: u32) -> Self {
        let process = Process::spawn(name, |dir| {
            let mut command = Command::new(python);
            command.arg(root().join("clients/python/examples/fleet.py"));
            command.args(["g", name]).current_dir(dir);
            command.env("TENURE_STORE", url).env("TENURE_TTL", ttl.to_string());
            command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("TENURE_TOKEN");
            command
        })
        .expect("it can be started");
        Self { process, name }
    }

    /// How often it has polled each target.
    fn polls(&self) -> BTreeMap<String, usize> {
        let mut polls = BTreeMap::new();
        for line in self.process.log().lines() {
            if let Some(target) = line.strip_prefix("poll ").and_then(|rest| rest.split(' ').next()) {
                *polls.entry(target.to_owned()).or_default() += 1;
            }
        }
        polls
    }

    fn polls_of(&self, target: &str) -> usize {
        self.polls().get(target).copied().unwrap_or(0)
    }

    /// Waits until it has polled these targets again.
    #[track_caller]
    fn goes_on(&self, targets: &[&str]) {
        let before = self.polls();
        wait::until("it polls on", SLOW, || {
            assert!(self.process.is_running(), "it ended: {}", self.process.log());
            let now = self.polls();
            targets.iter().all(|target| now.get(*target) > before.get(*target))
        });
    }
}

fn targets(daemon: &Daemon) -> Vec<Value> {
    let page = daemon.answered("GET", "/v1/groups/g/targets", "").1;
    page["targets"].as_array().cloned().unwrap_or_default()
}

fn put(daemon: &Daemon, target: &str, paused: bool) {
    let body = json!({ "paused": paused }).to_string();
    let status = daemon
        .answered("PUT", &format!("/v1/groups/g/targets/{target}"), &body)
        .0;
    assert!(status == 200 || status == 201, "{status}");
}

/// Waits until each target that is not paused is held by the node that it prefers, and each node has joined and holds one.
#[track_caller]
fn are_placed(daemon: &Daemon, nodes: &[&Node]) {
    let is_placed = |target: &Value| {
        let holder = target["holder"].as_str();
        let is_node = nodes.iter().any(|node| holder == Some(node.name));
        target["paused"] == true || (is_node && target["alive"] == true && target["preferred"] == target["holder"])
    };
    wait::until("every target is where it is preferred", SLOW, || {
        for node in nodes {
            assert!(node.process.is_running(), "it ended: {}", node.process.log());
        }
        let targets = targets(daemon);
        let has_one = |node: &&Node| {
            targets
                .iter()
                .any(|target| target["holder"].as_str() == Some(node.name))
        };
        targets.len() == TARGETS.len() && targets.iter().all(is_placed) && nodes.iter().all(has_one)
    });
}

fn holders(daemon: &Daemon) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let targets = targets(daemon);
    targets
        .iter()
        .map(|target| (text(&target["target"]), text(&target["holder"])))
        .collect()
}

#[test]
fn shares_targets_and_takes_over_from_a_killed_node() {
    let Some(python) = have("python3").or_skip() else {
        return;
    };
    let daemon = Daemon::start(&["--store", "memory:"]);
    for target in TARGETS {
        put(&daemon, target, false);
    }
    let one = Node::start(&python, &daemon.url(), "node-1", 8);
    let two = Node::start(&python, &daemon.url(), "node-2", 30);
    are_placed(&daemon, &[&one, &two]);
    let held = holders(&daemon);
    let of = |name: &str| -> Vec<&str> {
        let held = held.iter().filter(|(_, holder)| *holder == name);
        held.map(|(target, _)| target.as_str()).collect()
    };
    let (ones, twos) = (of("node-1"), of("node-2"));
    assert!(!ones.is_empty() && !twos.is_empty(), "{held:?}");
    one.goes_on(&ones);
    two.goes_on(&twos);

    // A paused target is released, and sees no further poll.
    put(&daemon, twos[0], true);
    wait::until("it is released", SLOW, || holders(&daemon)[twos[0]].is_empty());
    let before = two.polls_of(twos[0]);
    one.goes_on(&ones);
    assert_eq!(two.polls_of(twos[0]), before, "{}", two.process.log());
    put(&daemon, twos[0], false);
    two.goes_on(&twos);

    one.process.kill();
    two.goes_on(&ones);
    are_placed(&daemon, &[&two]);
    let status = two.process.terminate(SLOW).expect("it ends when it is asked to");
    assert_eq!(status.code(), Some(0), "{}", two.process.log());
    assert!(two.process.log().contains("left\n"), "{}", two.process.log());
    assert!(holders(&daemon).values().all(String::is_empty), "all leases are free");
}

#[test]
fn stops_polling_before_another_node_starts_when_cut_off() {
    let Some(python) = have("python3").or_skip() else {
        return;
    };
    let daemon = Daemon::start(&["--store", "memory:"]);
    for target in TARGETS {
        put(&daemon, target, false);
    }
    let proxy = Proxy::start(daemon.addr);
    let cut = Node::start(&python, &proxy.url("http"), "node-1", 8);
    are_placed(&daemon, &[&cut]);
    cut.goes_on(&TARGETS);
    proxy.set(Mode::BlackHole);
    let other = Node::start(&python, &daemon.url(), "node-2", 30);
    other.goes_on(&TARGETS);
    let before = cut.polls();
    let status = cut.process.wait(SLOW).expect("it ends by itself");
    assert_eq!(status.code(), Some(3), "{}", cut.process.log());
    assert!(cut.process.log().contains("lost "), "{}", cut.process.log());
    assert_eq!(cut.polls(), before, "two polled at once: {}", cut.process.log());
}
