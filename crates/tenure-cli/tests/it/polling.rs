//! A polling fleet, end to end: three real processes of the example `polling_fleet` poll three hundred endpoints, over a
//! daemon on its file and over a real Valkey, while one is killed, drained or stopped, and while the store is away.
//!
//! The endpoints are the witness: they write down every poll, and refuse a fencing token that is older than one they have
//! seen. Every wait is for something that happens. Where a time itself is promised, the test measures it, prints it, and
//! allows a busy machine a fixed delay on top.

mod endpoints;
mod fleet;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tenure_testkit::proxy::Mode;
use tenure_testkit::{Process, Proxy, wait};

use crate::support::{self, Daemon, Lateness, SOON};
use fleet::{Backend, Fleet, TARGETS, TTL};

/// What a busy machine may take on top of a promise, and of what it was late.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// Makes one test per store of functions that take its backend.
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod daemon {
            $(#[test] fn $name() { super::$name(&super::Backend::daemon()); })+
        }
        mod valkey {
            $(#[test] fn $name() {
                if let Some(backend) = super::Backend::valkey() {
                    super::$name(&backend);
                }
            })+
        }
    };
}

on_each_store!(
    every_target_is_polled_by_one_node,
    while_the_store_is_away_nobody_polls_for_longer_than_is_safe,
    a_holder_that_was_stopped_is_refused_by_the_fence,
);

fn every_target_is_polled_by_one_node(backend: &Backend) {
    let mut fleet = Fleet::start(&backend.url(), 3);

    let (victim, its) = fleet.busiest();
    victim.process.signal(Signal::KILL).unwrap();
    let (killed_at, lateness) = (Instant::now(), Lateness::watch());
    let moved = fleet.moved(&its, killed_at);
    let slack = ALLOWANCE + lateness.so_far() + TTL * backend.silences();
    eprintln!(
        "MEASURED {backend:?}: {} targets of a killed node polled by others after {moved:?} (ttl {TTL:?})",
        its.len()
    );
    assert!(moved < TTL + Duration::from_secs(1) + slack, "{moved:?}");
    drop(victim);
    fleet.settle();

    let (leaver, its) = fleet.busiest();
    let (silences, lateness) = (backend.silences(), Lateness::watch());
    leaver.process.signal(Signal::TERM).unwrap();
    let told_at = Instant::now();
    let moved = fleet.moved(&its, told_at);
    // An answer that is lost by it is waited for as long again.
    let slack = ALLOWANCE + lateness.so_far() * 2 + TTL * (backend.silences() - silences);
    eprintln!(
        "MEASURED {backend:?}: {} targets of a draining node polled by others after {moved:?}",
        its.len()
    );
    assert!(moved < Duration::from_secs(1) + slack, "{moved:?}");
    let ended = leaver.process.wait(support::SOON).unwrap();
    assert!(ended.success(), "{ended:?}: {}", leaver.process.log_tail());
    fleet.settle();
    assert_eq!(fleet.endpoints.one_at_a_time(), TARGETS);
    assert_eq!(fleet.endpoints.refused(), []);
}

fn while_the_store_is_away_nobody_polls_for_longer_than_is_safe(backend: &Backend) {
    let proxy = Proxy::start(backend.addr());
    let fleet = Fleet::start(&proxy.url(backend.scheme()), 3);

    proxy.set(Mode::BlackHole);
    // No later beat is confirmed, so their leases are free one ttl from here at the earliest.
    let (dark_at, lateness) = (Instant::now(), Lateness::watch());
    wait::until("it was dark for two ttls", TTL * 3, || dark_at.elapsed() > TTL * 2);
    let last = fleet.endpoints.last_poll().duration_since(dark_at);
    eprintln!(
        "MEASURED {backend:?}: the store away, the last of {TARGETS} targets polled after {last:?} (ttl {TTL:?})"
    );
    // A poll in flight during a stall arrives after it.
    let late = lateness.so_far();
    assert!(last < TTL + late, "{last:?}, {late:?} late");
    proxy.set(Mode::Pass);
    let light_at = Instant::now();
    fleet.settle();
    eprintln!(
        "MEASURED {backend:?}: all targets polled again by one node each, seen {:?} after",
        light_at.elapsed()
    );
    assert_eq!(fleet.endpoints.one_at_a_time(), TARGETS);
    assert_eq!(fleet.endpoints.refused(), []);
}

fn a_holder_that_was_stopped_is_refused_by_the_fence(backend: &Backend) {
    let mut fleet = Fleet::start(&backend.url(), 3);

    let (victim, its) = fleet.busiest();
    let tenure = backend.tenure_of(&victim.name);
    victim.process.pause().unwrap();
    let stopped_at = Instant::now();
    let moved = fleet.moved(&its, stopped_at);
    wait::until("two ttls have passed", TTL * 3, || stopped_at.elapsed() > TTL * 2);
    victim.process.resume().unwrap();
    let back_at = Instant::now();
    // It notices that its tenure has ended, and rejoins under a new one.
    wait::until("it has joined again", support::SOON, || {
        backend.tenure_of(&victim.name).is_some_and(|now| Some(now) != tenure)
    });
    fleet.settle();
    let late = fleet.endpoints.polls_under(&its, &victim.name, back_at);
    eprintln!(
        "MEASURED {backend:?}: {} targets of a stopped node polled by others after {moved:?}; {} polls with an old token \
         after it went on, {} of them refused",
        its.len(),
        late.len(),
        late.iter().filter(|poll| !poll.accepted).count()
    );
    assert!(late.iter().all(|poll| !poll.accepted), "{late:?}");
    assert_eq!(fleet.endpoints.one_at_a_time(), TARGETS);
}

/// The sessions are in a group in which no node is.
#[test]
fn live_sessions_of_another_group_are_polled() {
    let daemon = Daemon::start(&[]);
    let front = daemon.join("chat", "front", 120_000);
    let attach = |session: &str| {
        let body = json!({"tenure": front, "connection": "socket"}).to_string();
        let (status, answer) = daemon.answered("PUT", &format!("/v1/groups/chat/sessions/{session}"), &body);
        assert!(status == 200 || status == 201, "{answer}");
    };
    attach("one");
    attach("two");
    let node = Process::spawn("node", |_| {
        let mut command = Command::new(fleet::example());
        command.args(["--store", &daemon.url(), "--url", "http://127.0.0.1:9/{}"]);
        command.args([
            "--group",
            "pollers",
            "--node",
            "node",
            "--ttl",
            "20s",
            "--sessions",
            "chat",
        ]);
        command
    });
    let node = node.expect("the example can be started");
    let times = |session: &str, what: &str| {
        let begin = format!("node {session} token=");
        let log = node.log();
        log.lines()
            .filter(|line| line.starts_with(&begin) && line.ends_with(what))
            .count()
    };
    wait::until("both sessions are polled", SOON, || {
        times("one", "is ours") == 1 && times("two", "is ours") == 1
    });
    let path = format!("/v1/groups/chat/sessions/one/connections/socket?tenure={front}");
    assert_eq!(daemon.answered("DELETE", &path, "").0, 204);
    wait::until("nothing is polled for the one that is away", SOON, || {
        times("one", "is given back") == 1
    });
    attach("one");
    wait::until("it is polled again", SOON, || times("one", "is ours") == 2);
    assert_eq!(times("two", "is given back"), 0, "{}", node.log());
    assert!(node.terminate(SOON).expect("it ends when it is asked to").success());
}
