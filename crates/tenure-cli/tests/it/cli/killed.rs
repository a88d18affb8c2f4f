//! The promise, end to end: three gateways hold thousands of devices, and one is killed.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, Lateness, SOON, said};

const KEYS: usize = 3_000;
const TTL: Duration = Duration::from_secs(4);

/// With a ttl that no busy machine lets run out, or with that of the one that is to die.
fn gateway(daemon: &Daemon, name: &str, ttl: &str) -> (Process, String) {
    let script = "echo \"tenure $TENURE_ID\"; exec sleep 1000";
    let process = daemon.spawn(&[
        "join", "--group", "ingest", "--member", name, "--ttl", ttl, "--", "sh", "-c", script,
    ]);
    said(&process, "tenure ");
    let log = process.log();
    let tenure = log
        .lines()
        .find_map(|line| line.strip_prefix("tenure "))
        .unwrap()
        .to_owned();
    (process, tenure)
}

fn keys(of: usize) -> Vec<String> {
    (0..KEYS).map(|n| format!("device-{of}-{n}")).collect()
}

fn claim(daemon: &Daemon, key: &str) -> (u16, Value) {
    daemon.answered("GET", &format!("/v1/groups/ingest/registries/devices/claims/{key}"), "")
}

fn claim_all(daemon: &Daemon, tenure: &str, keys: &[String]) {
    for part in keys.chunks(500) {
        let (status, answer) = daemon.claim("ingest", "devices", tenure, part);
        assert_eq!(status, 200, "{answer}");
    }
}

/// The entries that were counted as evicted, by owner.
fn evicted(daemon: &Daemon, owner: &str) -> u64 {
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    metrics
        .lines()
        .filter(|line| {
            line.starts_with("tenure_registry_evicted_total{") && line.contains(&format!("owner=\"{owner}\""))
        })
        .map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|count| count.parse::<f64>().ok())
                .unwrap_or(0.0) as u64
        })
        .sum()
}

/// Whether a member owns nothing any more, alive or dead.
fn owns_nothing(daemon: &Daemon, owner: &str) -> bool {
    let path = format!("/v1/groups/ingest/registries/devices/claims?owner={owner}&limit=1");
    daemon.answered("GET", &path, "").1["claims"] == serde_json::json!([])
}

/// Counts all claims of the registry.
fn count(daemon: &Daemon) -> usize {
    let claims = daemon
        .run(&[
            "claims",
            "--group",
            "ingest",
            "--registry",
            "devices",
            "--limit",
            "100000",
            "--json",
        ])
        .json();
    claims["claims"].as_array().unwrap().len()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
fn killed_members_claims_are_evicted_within_a_second() {
    let daemon = Daemon::start(&[]);
    let gateways = [("gw-0", "20s"), ("gw-1", "4s"), ("gw-2", "20s")].map(|(name, ttl)| gateway(&daemon, name, ttl));
    for (n, (_, tenure)) in gateways.iter().enumerate() {
        claim_all(&daemon, tenure, &keys(n));
    }
    assert_eq!(claim(&daemon, "device-1-0").1["alive"], true);

    gateways[1].0.signal(Signal::KILL).unwrap();
    let (killed_at, lateness) = (Instant::now(), Lateness::watch());
    // As soon as its deadline has passed its claims read as dead, or are gone already; never later than ttl.
    let mut dead_at = None;
    wait::until("its claims are not alive", SOON, || {
        let (status, answer) = claim(&daemon, "device-1-0");
        let dead = status == 404 || answer["alive"] == false;
        if dead {
            dead_at = Some(killed_at.elapsed());
        }
        dead
    });
    let dead_at = dead_at.unwrap();
    // A stall of the machine adds its length; if the store noticed it, also another ttl.
    let slack = || lateness.so_far() + TTL * daemon.silences("ingest");
    // A claim that reads as dead does so at the deadline; the rest of the slack is for a busy test machine.
    assert!(dead_at < TTL + Duration::from_millis(500) + slack(), "{dead_at:?}");
    wait::until("its claims are gone", SOON, || owns_nothing(&daemon, "gw-1"));
    let gone_at = killed_at.elapsed();
    assert!(gone_at < TTL + Duration::from_secs(1) + slack(), "{gone_at:?}");
    eprintln!("{KEYS} claims of a killed owner: dead after {dead_at:?}, gone after {gone_at:?} (ttl {TTL:?})");

    wait::until("they are counted", SOON, || evicted(&daemon, "gw-1") >= KEYS as u64);
    assert_eq!(
        ["gw-0", "gw-1", "gw-2"].map(|owner| evicted(&daemon, owner)),
        [0, KEYS as u64, 0]
    );
    let page = daemon
        .run(&[
            "events", "--group", "ingest", "--type", "evicted", "--last", "1000", "--json",
        ])
        .json();
    let events = page["events"].as_array().unwrap();
    let told: u64 = events
        .iter()
        .map(|event| event["counts"]["devices"].as_u64().unwrap())
        .sum();
    assert_eq!(told, KEYS as u64, "the events tell each entry once");
    assert_eq!(count(&daemon), 2 * KEYS, "nobody else lost anything");
    for n in [0, 2] {
        assert_eq!(claim(&daemon, &format!("device-{n}-0")).1["alive"], true);
    }
}

#[test]
fn restart_supersedes_the_zombie_immediately() {
    let daemon = Daemon::start(&[]);
    let (zombie, old) = gateway(&daemon, "gw", "20s");
    let mine = keys(0);
    claim_all(&daemon, &old, &mine);
    // It hangs and is restarted before its ttl is over.
    zombie.pause().unwrap();
    let (fresh, new) = gateway(&daemon, "gw", "20s");
    let (kept, lost) = mine.split_at(KEYS / 2);
    claim_all(&daemon, &new, kept);

    let (status, answer) = daemon.claim("ingest", "devices", &old, &[String::from("late")]);
    assert_eq!(
        (status, &answer["code"], &answer["reason"]),
        (410, &Value::from("tenure_ended"), &Value::from("superseded"))
    );
    let (status, answer) = daemon.answered("PUT", &format!("/v1/groups/ingest/tenures/{old}/beat"), "{}");
    assert_eq!(
        (status, &answer["reason"]),
        (410, &Value::from("superseded")),
        "{answer}"
    );
    zombie.resume().unwrap();
    assert_eq!(zombie.wait(SOON).unwrap().code(), Some(1), "{}", zombie.log());

    // What the new one claimed is its own, the rest of the old one's goes; the zombie's end touches neither.
    wait::until("the rest is gone", SOON, || count(&daemon) == kept.len());
    assert_eq!(claim(&daemon, &kept[0]).1["tenure"], new);
    assert_eq!(claim(&daemon, &lost[0]).0, 404);
    assert!(fresh.is_running());
    assert_eq!(claim(&daemon, "late").0, 404);
}
