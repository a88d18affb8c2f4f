//! Two nodes that want one lease: whatever becomes of the first, the second starts when nothing of it is left.
//!
//! The commands ignore TERM and leave a daemon in a session of its own behind. Each of the four processes writes down
//! when it lived; the overlap between the nodes is computed from that.

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Mode, Process, Proxy, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats, dies};
use crate::run::node::{is, running, until};
use crate::support::{Daemon, said, spawn};

/// What keeps the lease.
enum Store {
    Valkey(Server),
    /// A daemon, whose store is a file of SQLite.
    Daemon(Daemon),
}

impl Store {
    fn all() -> Vec<Store> {
        let daemon = Daemon::start(&["--store", "sqlite:tenure.db"]);
        let valkey = Server::start(Flavour::Valkey).map(Store::Valkey);
        valkey.into_iter().chain([Store::Daemon(daemon)]).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Store::Valkey(_) => "valkey",
            Store::Daemon(_) => "daemon on sqlite",
        }
    }

    /// The way to it, with something in between that can be cut.
    fn proxy(&self) -> (Proxy, String) {
        let (addr, scheme) = match self {
            Store::Valkey(server) => (server.addr(), "valkey"),
            Store::Daemon(daemon) => (daemon.addr, "http"),
        };
        let proxy = Proxy::start(addr);
        let url = proxy.url(scheme);
        (proxy, url)
    }

    fn process(&self) -> &Process {
        match self {
            Store::Valkey(server) => server.process(),
            Store::Daemon(daemon) => &daemon.process,
        }
    }
}

fn contender(who: &str, store: &str, beats: &Beats) -> Process {
    let args = ["--leader", "lease:music", "--member", who, "--store", store];
    // An empty store may have forgotten who holds what; that is over after the longest ttl.
    let times = ["--ttl", "4s", "--max-ttl", "4s", "--grace", "200ms"];
    running(who, &[&args[..], &times].concat(), &beats::stubborn(), |command| {
        beats.arm(command, who)
    })
}

/// The token under which a node leads, which is higher than another. In doubt, as after a standstill, it names none.
#[track_caller]
fn token_above(other: u64, node: &Process) -> u64 {
    let is_above = |status: &Value| status["token"].as_u64().is_some_and(|token| token > other);
    let status = until(node, "it has a higher token", is_above);
    status["token"].as_u64().unwrap()
}

/// What befalls the first node, and what makes it good again.
fn handed_over(fault: &str, strike: impl Fn(&Process, &Proxy), heal: impl Fn(&Process, &Proxy)) {
    for store in Store::all() {
        let beats = Beats::new();
        let (ways, urls): (Vec<_>, Vec<_>) = [store.proxy(), store.proxy()].into_iter().unzip();
        let first = contender("a", &urls[0], &beats);
        // The command and its daemon.
        beats.begins("a", 2);
        let second = contender("b", &urls[1], &beats);
        is(&second, "leadership", "replica");
        let token = token_above(0, &first);
        strike(&first, &ways[0]);
        let successor = beats.begins("b", 2);
        eprintln!(
            "{fault}, {}: nobody for {:?}, with a ttl of 4 s",
            store.name(),
            beats.gap("a", "b")
        );
        assert!(beats.lives("a").iter().all(|life| !crate::support::exists(&life.pid)));
        token_above(token, &second);
        heal(&first, &ways[0]);
        // What was struck does not come back beside its successor, but after it.
        if first.is_running() {
            is(&first, "leadership", "replica");
            beats.goes_on(&successor);
            beats.never_overlapped();
            second.kill();
            beats.begins("a", 4);
        }
        beats.never_overlapped();
    }
}

#[test]
fn no_overlap_after_a_kill() {
    handed_over("SIGKILL", |first, _| first.kill(), |_, _| ());
}

#[test]
fn no_overlap_after_a_freeze() {
    handed_over(
        "SIGSTOP",
        |first, _| first.pause().unwrap(),
        |first, _| first.resume().unwrap(),
    );
}

#[test]
fn no_overlap_with_a_black_hole_store() {
    handed_over(
        "black hole",
        |_, way| way.set(Mode::BlackHole),
        |_, way| way.set(Mode::Pass),
    );
}

#[test]
fn no_overlap_without_answers_of_the_store() {
    handed_over(
        "no answers",
        |_, way| way.set(Mode::DropReplies),
        |_, way| way.set(Mode::Pass),
    );
}

#[test]
fn frozen_store_stops_the_command_and_starts_no_other() {
    for store in Store::all() {
        let beats = Beats::new();
        let (_way, url) = store.proxy();
        let first = contender("a", &url, &beats);
        let lives = [beats.begins("a", 1), beats.begins("a", 2)];
        let second = contender("b", &url, &beats);
        is(&second, "leadership", "replica");
        store.process().pause().unwrap();
        lives.iter().for_each(dies);
        assert!(beats.lives("b").is_empty() && first.is_running());
        // No member lapsed during the outage.
        store.process().resume().unwrap();
        wait::until("one of them goes on", PATIENCE, || {
            beats.lives("a").len() + beats.lives("b").len() >= 4
        });
        beats.never_overlapped();
    }
}

#[test]
fn graceful_stop_hands_over_after_the_command_ended() {
    for store in Store::all() {
        let beats = Beats::new();
        let (_way, url) = store.proxy();
        let first = contender("a", &url, &beats);
        beats.begins("a", 2);
        let second = contender("b", &url, &beats);
        is(&second, "leadership", "replica");
        assert_eq!(first.terminate(PATIENCE).unwrap().code(), Some(137));
        beats.begins("b", 2);
        eprintln!("TERM, {}: nobody for {:?}", store.name(), beats.gap("a", "b"));
        beats.never_overlapped();
        // The next one to end has no successor.
        second.signal(Signal::TERM).unwrap();
        assert_eq!(second.wait(PATIENCE).unwrap().code(), Some(137));
        beats.never_overlapped();
    }
}

#[test]
fn command_gets_its_fencing_token() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let node = spawn("a", |command, _| {
        command.args([
            "run",
            "--leader",
            "lease:music",
            "--store",
            &daemon.url(),
            "--group",
            "players",
        ]);
        command.args(["--status-file", "status.json", "--", "sh", "-c"]);
        command.arg("env > .env; mv .env env; exec sleep 1000");
    });
    wait::until("it has written them", PATIENCE, || node.dir().join("env").exists());
    let told = std::fs::read_to_string(node.dir().join("env")).unwrap();
    let value = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {told}")).to_owned()
    };
    let status = until(&node, "it leads", |status| status["leadership"] == "primary");
    assert_eq!(value("TENURE_ROLE"), "primary");
    assert_eq!(value("TENURE_TERM"), status["term"].to_string());
    assert_eq!(value("TENURE_FENCING_TOKEN"), status["token"].to_string());
    assert_eq!(value("TENURE_GROUP"), "players");
    assert_eq!(value("TENURE_STORE"), daemon.url());
    assert_eq!(
        value("TENURE_DEADLINE_FILE"),
        node.dir().join("status.json").to_str().unwrap()
    );
    let (_, leases) = daemon.http("GET", "/v1/groups/players/leases", "");
    assert!(leases.to_string().contains(&value("TENURE_FENCING_TOKEN")), "{leases}");
    // The deadline moves on with every beat.
    let deadline = status["deadline"].as_str().unwrap().to_owned();
    until(&node, "the deadline moves on", |status| {
        status["deadline"]
            .as_str()
            .is_some_and(|later| later > deadline.as_str())
    });
}

#[test]
fn a_node_that_waits_for_its_store_ends_when_it_is_asked_to() {
    let node = spawn("a", |command, _| {
        command.args([
            "run",
            "--leader",
            "lease:a",
            "--store",
            "http://127.0.0.1:1",
            "--",
            "true",
        ]);
    });
    said(&node, "the store is unreachable");
    assert_eq!(node.terminate(PATIENCE).unwrap().code(), Some(143));
}
