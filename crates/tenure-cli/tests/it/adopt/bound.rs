//! The bound that the guide promises: a dead owner's entries go within ttl + interval + settle.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure_testkit::Process;
use tenure_testkit::valkey::{Flavour, Server};

use super::{PATIENCE, claim, tenure};
use crate::support::Lateness;

const TTL: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_secs(5);
/// A pass that waited for its own dead would take an interval and a settle time more.
const SLACK: Duration = Duration::from_millis(2_500);
/// Deaths come at every moment of such a pass.
const APART: Duration = Duration::from_millis(400);
const DYING: usize = 16;
/// After a longer stall the janitor may see a break in the store's health.
const STANDSTILL: Duration = Duration::from_millis(500);

fn heartbeat(server: &Server, owner: &str, lives: Duration) {
    let key = format!("instance:heartbeat:{owner}");
    let ms = lives.as_millis().to_string();
    server.cli(&["SET", &key, "1", "PX", &ms]).unwrap();
}

/// How long each entry was there after the last heartbeat of its owner.
fn lingered(server: &Server) -> BTreeMap<String, Duration> {
    let (begun, mut last_beats, mut gone) = (Instant::now(), BTreeMap::new(), BTreeMap::new());
    while gone.len() < DYING {
        let n = last_beats.len();
        if n < DYING && begun.elapsed() >= APART * u32::try_from(n).unwrap() {
            last_beats.insert(format!("device-{n}"), Instant::now());
            heartbeat(server, &format!("dying-{n}"), TTL);
        }
        let there = server.cli(&["HKEYS", "connections:registry"]).unwrap().texts();
        for (device, last_beat) in &last_beats {
            if !there.contains(device) {
                gone.entry(device.clone()).or_insert_with(|| last_beat.elapsed());
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{gone:?} of {last_beats:?}");
        std::thread::sleep(Duration::from_millis(10)); // tidy: waits on the pace of the looks
    }
    gone
}

#[test]
fn every_owner_is_gone_within_ttl_interval_and_settle() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    for n in 0..DYING * 3 {
        let owner = if n < DYING { "dying" } else { "kept" };
        claim(&server, &format!("device-{n}"), &format!("{owner}-{n}"));
        heartbeat(&server, &format!("{owner}-{n}"), Duration::from_secs(600));
    }
    let daemon = Process::spawn("adopt", |_| tenure(&server, &["--interval", "1s", "--settle", "5s"])).unwrap();
    let lateness = Lateness::watch();
    let gone = lingered(&server);
    let late = lateness.so_far();
    // After a standstill the janitor does not trust what it saw: every owner settles again.
    let again = if late > STANDSTILL {
        SETTLE + INTERVAL
    } else {
        Duration::ZERO
    };
    for (device, after) in &gone {
        assert!(*after >= TTL + SETTLE, "{device} went early, after {after:?}");
        let bound = TTL + INTERVAL + SETTLE + SLACK + late + again;
        assert!(
            *after <= bound,
            "{device} was there for {after:?}: {gone:?}\n{}",
            daemon.log()
        );
    }
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
}
