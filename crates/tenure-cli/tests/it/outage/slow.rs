//! A store that answers late, and has many groups whose members leave the ticks to the daemon.

use std::time::{Duration, Instant};

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};

use crate::outage::on_each_server;
use crate::support::{Daemon, Lateness, SOON};

on_each_server!(many_groups_of_a_slow_store_stay_settled);

const GROUPS: usize = 300;
/// What each call takes on top, there and back. Eight groups at a time would be ticked once in three seconds each.
const DELAY: Duration = Duration::from_millis(40);
/// With standstills of the machine and the store for longer than this there is a gap all the same.
const STANDSTILL: Duration = Duration::from_secs(1);

fn many_groups_of_a_slow_store_stay_settled(flavour: Flavour) {
    let Some(server) = Server::start(flavour) else { return };
    let proxy = Proxy::start(server.addr());
    let daemon = Daemon::start(&["--store", &proxy.url("valkey")]);
    let groups: Vec<String> = (0..GROUPS).map(|n| format!("g{n}")).collect();
    for group in &groups {
        daemon.join(group, "member", 110_000);
    }
    // A stall before the delay shows only in the first ticks after it, so it counts as well.
    let lateness = Lateness::of_store(server.addr());
    let before: Vec<u32> = groups.iter().map(|group| daemon.silences(group)).collect();
    proxy.set(Mode::Delay {
        requests: DELAY,
        replies: DELAY,
    });
    let since = Instant::now();
    wait::until("the store was slow for ten seconds", SOON, || {
        assert_eq!(daemon.http("GET", "/livez", "").0, 200);
        since.elapsed() > Duration::from_secs(10)
    });
    let late = lateness.so_far();
    proxy.set(Mode::Pass);
    let silent = groups
        .iter()
        .zip(before)
        .filter(|(group, before)| daemon.silences(group) > *before);
    let silent = silent.count();
    eprintln!("MEASURED {flavour:?}: {silent} of {GROUPS} groups were ticked too late, {late:?} late");
    assert!(silent < GROUPS / 3 || late > STANDSTILL, "{silent} groups");
}
