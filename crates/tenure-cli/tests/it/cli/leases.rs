//! Leases, end to end: real members, a real daemon, and what happens to a lease when one of them is killed, stopped or
//! started again. The members are `tenure join` around a shell; what they hold they acquire over HTTP, as a program in
//! any language would.
#![expect(clippy::disallowed_methods, reason = "the promises are about real time")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, Lateness, SOON, address_in, said};

const GROUP: &str = "fleet";
/// How long the one that is to die may be silent; the others may be so for longer than any busy machine makes them.
const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(8);

/// A member that beats, and its tenure.
struct Node {
    process: Process,
    tenure: String,
}

fn node(daemon: &Daemon, name: &str, ttl: &str) -> Node {
    let script = "echo \"tenure $TENURE_ID\"; exec sleep 1000";
    let process = daemon.spawn(&[
        "join", "--group", GROUP, "--member", name, "--ttl", ttl, "--", "sh", "-c", script,
    ]);
    said(&process, "tenure ");
    let log = process.log();
    let tenure = log.lines().find_map(|line| line.strip_prefix("tenure "));
    let tenure = tenure.expect("it said so").to_owned();
    Node { process, tenure }
}

/// Acquires a free lease and returns its token. After a stall of the machine the store grants none for a while.
#[track_caller]
fn granted(daemon: &Daemon, lease: &str, node: &Node) -> u64 {
    let (answer, _, refused) = insist(daemon, lease, node);
    assert_eq!(
        (&answer["outcome"], refused),
        (&json!("granted"), Vec::new()),
        "{answer}"
    );
    answer["token"].as_u64().expect("a token")
}

/// Asks for a lease until it is granted; answers the grant, when it came, and who was said to have it before.
#[track_caller]
fn insist(daemon: &Daemon, lease: &str, node: &Node) -> (Value, Instant, Vec<Value>) {
    let (mut refused, mut grant) = (Vec::new(), None);
    wait::until(&format!("{lease} is granted"), SOON, || {
        match daemon.acquire(GROUP, lease, &node.tenure) {
            (200, answer) => grant = Some((answer, Instant::now())),
            (_, answer) if answer["code"] == "unsettled" && daemon.silences(GROUP) > 0 => {}
            (_, answer) => refused.push(answer),
        }
        grant.is_some()
    });
    let (answer, at) = grant.expect("just granted");
    (answer, at, refused)
}

fn events(daemon: &Daemon, kind: &str) -> Vec<Value> {
    let path = format!("/v1/groups/{GROUP}/events?types={kind}&limit=1000");
    let page = daemon.answered("GET", &path, "").1;
    page["events"].as_array().cloned().expect("events")
}

#[test]
fn killed_holders_lease_moves_within_a_second_of_its_deadline() {
    let daemon = Daemon::start(&[]);
    let nodes = [("node-0", "2s"), ("node-1", "8s"), ("node-2", "8s")].map(|(name, ttl)| node(&daemon, name, ttl));
    let token = granted(&daemon, "poll", &nodes[0]);
    let others = granted(&daemon, "other", &nodes[1]);
    for node in &nodes[1..] {
        let (status, refused) = daemon.acquire(GROUP, "poll", &node.tenure);
        assert_eq!(
            (status, &refused["code"], &refused["holder"], &refused["tenure"]),
            (409, &json!("lease_held"), &json!("node-0"), &json!(nodes[0].tenure))
        );
    }
    nodes[0].process.signal(Signal::KILL).unwrap();
    let (killed_at, lateness) = (Instant::now(), Lateness::watch());
    let (grant, at, refused) = insist(&daemon, "poll", &nodes[2]);
    let took = at.duration_since(killed_at);
    let slack = lateness.so_far() + LONG * daemon.silences(GROUP);
    assert!(took < TTL + Duration::from_secs(1) + slack, "{took:?}");
    assert!(grant["token"].as_u64() > Some(token.max(others)), "{grant}");
    assert!(
        refused.iter().all(|answer| answer["code"] == "lease_held"),
        "{refused:?}"
    );
    eprintln!("MEASURED the lease of a killed holder: taken over after {took:?} (ttl {TTL:?})");
    // Whether the janitor or the next holder came first, readers see the new holder, and the lease was released once.
    let seen = daemon.http("GET", &format!("/v1/groups/{GROUP}/leases/poll"), "").1;
    assert_eq!(
        (&seen["tenure"], &seen["alive"]),
        (&json!(nodes[2].tenure), &json!(true))
    );
    let of_the_dead = |event: &&Value| {
        event["lease"] == "poll" && (event["tenure"] == nodes[0].tenure || event["from"] == nodes[0].tenure)
    };
    let (released, taken) = (events(&daemon, "lease_released"), events(&daemon, "lease_taken_over"));
    assert_eq!(
        released.iter().chain(&taken).filter(of_the_dead).count(),
        1,
        "{released:?} {taken:?}"
    );
    let kept = daemon.acquire(GROUP, "other", &nodes[1].tenure).1;
    assert_eq!((&kept["outcome"], &kept["token"]), (&json!("kept"), &json!(others)));
}

#[test]
fn tokens_rise_across_daemon_restarts() {
    let mut daemon = Daemon::start(&[]);
    let tenure = daemon.join(GROUP, "node", 6_000);
    let holder = |daemon: &Daemon| daemon.answered("GET", &format!("/v1/groups/{GROUP}/leases/poll"), "").1;
    let ask = |daemon: &Daemon, lease: &str| daemon.acquire(GROUP, lease, &tenure);
    let given = |lease: &str| daemon.granted(GROUP, lease, &[&tenure], 6_000)["token"].as_u64();
    let mut tokens = Vec::from_iter(["poll", "second", "third"].map(|lease| given(lease).expect("a token")));
    for starts in 1..3 {
        daemon.process.kill();
        daemon.process.restart().unwrap();
        daemon.addr = address_in(&daemon.process, starts);
        // Acknowledged grants are still held by their holders.
        let seen = holder(&daemon);
        assert_eq!(
            (&seen["token"], &seen["tenure"], &seen["alive"]),
            (&json!(tokens[0]), &json!(tenure), &json!(true))
        );
        assert_eq!(ask(&daemon, "poll").1["outcome"], "kept");
        let lease = format!("new-{starts}");
        let mut answers = Vec::new();
        wait::until("it grants again", SOON, || {
            let (status, answer) = daemon.answered("PUT", &format!("/v1/groups/{GROUP}/tenures/{tenure}/beat"), "{}");
            assert_eq!(status, 200, "{answer}");
            let (status, answer) = ask(&daemon, &lease);
            assert!(status == 200 || answer["code"] == "unsettled", "{answer}");
            answers.push(answer);
            status == 200
        });
        tokens.push(answers.last().unwrap()["token"].as_u64().expect("a token"));
        assert!(
            answers.len() == 1 || answers[0]["retry_after_ms"].as_u64() <= Some(6_000),
            "{answers:?}"
        );
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn the_lease_of_a_superseded_holder_waits_for_its_last_deadline() {
    let daemon = Daemon::start(&[]);
    let zombie = node(&daemon, "node", "8s");
    let token = granted(&daemon, "poll", &zombie);
    // It hangs and is restarted before its ttl is over. The old process may resume at any time.
    zombie.process.pause().unwrap();
    let (asked_at, lateness) = (Instant::now(), Lateness::watch());
    let seen = daemon
        .answered("GET", &format!("/v1/groups/{GROUP}/members/node"), "")
        .1;
    let left = Duration::from_millis(seen["expires_in_ms"].as_u64().expect("a time"));
    let fresh = node(&daemon, "node", "8s");
    let (grant, at, refused) = insist(&daemon, "poll", &fresh);
    assert!(!refused.is_empty(), "it is not given out at once");
    assert!(
        refused
            .iter()
            .all(|answer| answer["code"] == "lease_held" && answer["tenure"] == zombie.tenure),
        "{refused:?}"
    );
    let took = at.duration_since(asked_at);
    assert!(
        took >= left,
        "granted after {took:?}, and the zombie may have worked for {left:?}"
    );
    let slack = lateness.so_far() + LONG * daemon.silences(GROUP);
    assert!(took < left + Duration::from_secs(1) + slack, "{took:?} {left:?}");
    assert!(grant["token"].as_u64() > Some(token));
    // It wakes up, and can do nothing about it.
    let (status, late) = daemon.release(GROUP, "poll", &zombie.tenure, token, None);
    assert_eq!((status, &late["reason"]), (410, &json!("superseded")), "{late}");
    zombie.process.resume().unwrap();
    assert_eq!(
        zombie.process.wait(SOON).unwrap().code(),
        Some(1),
        "{}",
        zombie.process.log()
    );
    let kept = daemon.acquire(GROUP, "poll", &fresh.tenure).1;
    assert_eq!((&kept["outcome"], &kept["token"]), (&json!("kept"), &grant["token"]));
}

#[test]
fn hand_off_reserves_and_leave_frees_immediately() {
    let daemon = Daemon::start(&[]);
    let nodes: Vec<_> = (0..3).map(|n| node(&daemon, &format!("node-{n}"), "10s")).collect();
    let token = granted(&daemon, "poll", &nodes[0]);
    let (status, given) = daemon.release(GROUP, "poll", &nodes[0].tenure, token, Some("node-2"));
    assert_eq!((status, &given["outcome"]), (200, &json!("reserved")));
    let (status, refused) = daemon.acquire(GROUP, "poll", &nodes[1].tenure);
    assert_eq!((status, &refused["reserved_for"]), (409, &json!("node-2")), "{refused}");
    let next = granted(&daemon, "poll", &nodes[2]);
    assert!(next > token);
    // One who says that it is over needs no waiting.
    nodes[2].process.signal(Signal::TERM).unwrap();
    nodes[2].process.wait(SOON).unwrap();
    let last = granted(&daemon, "poll", &nodes[1]);
    assert!(last > next);
}

#[test]
fn lease_lines_of_a_daemon_have_the_ttl() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join(GROUP, "one", 47_000);
    daemon.granted(GROUP, "x", &[&tenure], 47_000);
    wait::until("the grant is logged", SOON, || {
        let log = daemon.process.log();
        let mut lines = log.lines().filter(|line| line.contains("lease acquired"));
        lines.any(|line| line.contains("ttl_ms=47000"))
    });
}

#[test]
fn a_repeated_release_is_neither_logged_nor_counted() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join(GROUP, "one", 60_000);
    let token = daemon.granted(GROUP, "x", &[&tenure], 60_000)["token"]
        .as_u64()
        .unwrap();
    daemon.granted(GROUP, "last", &[&tenure], 60_000);
    for _ in 0..3 {
        assert_eq!(daemon.release(GROUP, "x", &tenure, token, None).0, 200);
    }
    for _ in 0..2 {
        let (status, _) = daemon.http("DELETE", &format!("/v1/groups/{GROUP}/targets/none"), "");
        assert_eq!(status, 204);
    }
    let last = daemon.http("GET", &format!("/v1/groups/{GROUP}/leases/last"), "").1["token"]
        .as_u64()
        .unwrap();
    daemon.release(GROUP, "last", &tenure, last, None);
    wait::until("the last release is logged", SOON, || {
        daemon.process.log().matches("lease released").count() >= 2
    });
    let log = daemon.process.log();
    assert_eq!(log.matches("lease released").count(), 2, "{log}");
    assert!(!log.contains("target removed"), "{log}");
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    let counted = |line: &&str| line.starts_with("tenure_lease_transitions_total") && line.contains("\"released\"");
    let counted: Vec<_> = metrics.lines().filter(counted).collect();
    assert!(counted.len() == 1 && counted[0].ends_with(" 2"), "{counted:?}");
}
