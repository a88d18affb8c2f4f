//! The store is away for three ttls and keeps its data. No living member is declared dead; a member that died during the
//! outage lapses one full ttl after the store is back.

use std::time::{Duration, Instant};

use tenure_testkit::server::Signal;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::wait;

use crate::outage::fleet::{Fleet, TTL};
use crate::outage::on_each_server;
use crate::outage::witness::{ALLOWANCE, at, between, events, metric, tenures};
use crate::support::{Daemon, Lateness, SOON};

on_each_server!(
    a_store_that_restarts_with_its_data_has_declared_nobody_dead,
    a_store_that_was_frozen_has_declared_nobody_dead,
);

fn a_store_that_restarts_with_its_data_has_declared_nobody_dead(flavour: Flavour) {
    is_away(
        flavour,
        "restarted with its data",
        Server::kill,
        Server::restart_with_data,
    );
}

fn a_store_that_was_frozen_has_declared_nobody_dead(flavour: Flavour) {
    is_away(flavour, "frozen", Server::pause, Server::resume);
}

fn is_away(flavour: Flavour, outage: &str, begin: impl FnOnce(&Server), end: impl FnOnce(&Server)) {
    let Some(server) = Server::with(flavour, DURABLE) else {
        return;
    };
    let daemon = Daemon::start(&["--store", &server.url()]);
    let mut fleet = Fleet::gather(&server.url(), &daemon);
    let before = fleet.tenures();
    // A first pass that is under way when the outage begins would report its success during the outage.
    wait::until("each sweep has succeeded once", SOON, || {
        swept(&daemon).iter().all(|at| *at > 0.0)
    });

    begin(&server);
    let since = Instant::now();
    fleet.notice_the_outage();
    // One of them really dies in the dark.
    let victim = fleet.wrapped.pop().expect("a wrapped process");
    victim.process.signal(Signal::KILL).expect("it runs");
    fleet.pause_by_themselves();
    says_that_its_store_is_away(&daemon);
    let (last, was_well) = (swept(&daemon), well_again(&daemon));
    wait::until("three ttls have passed", TTL * 4, || since.elapsed() > TTL * 3);
    assert_eq!(swept(&daemon), last, "a sweep without a store is no success");
    assert_eq!(well_again(&daemon), was_well);
    end(&server);
    let lateness = Lateness::of_store(server.addr());

    fleet.recover_in_a_beat(&daemon, &format!("{flavour:?} {outage} after {:?}", since.elapsed()));
    assert_eq!(fleet.tenures(), before, "the tenures go on");
    assert_eq!(fleet.rejoins(), vec![0; before.len()]);

    // The dead one had one full ttl from when the store served again, and not a beat more.
    wait::until("the dead one has lapsed", TTL + SOON, || {
        !events(&daemon, "lapsed").is_empty()
    });
    let lapsed = events(&daemon, "lapsed");
    assert_eq!(tenures(&lapsed), [victim.tenure()]);
    let unsettled = events(&daemon, "group_unsettled");
    let resumed = unsettled
        .iter()
        .rfind(|event| event["reason"] == "silent" && at(event) < at(&lapsed[0]))
        .unwrap_or_else(|| panic!("no gap was noticed: {unsettled:?}"));
    let (grace, late) = (between(resumed, &lapsed[0]), lateness.so_far());
    eprintln!("MEASURED {flavour:?} {outage}: the dead one lapsed {grace:?} after the store was back (ttl {TTL:?})");
    assert!(
        grace >= TTL && grace < TTL + ALLOWANCE + late,
        "{grace:?}, {late:?} late"
    );
    assert_eq!(fleet.tenures(), before);
    assert_eq!(fleet.ended(&daemon, "evicted,superseded,expelled,left"), [""; 0]);
    assert_eq!(metric(&daemon, "tenure_registry_evicted_total", &[]), 0.0);
}

/// When the sweeps last got through.
fn swept(daemon: &Daemon) -> [f64; 2] {
    let name = "tenure_sweep_last_success_timestamp_seconds";
    ["janitor", "reaper"].map(|sweep| metric(daemon, name, &[("sweep", sweep)]))
}

/// How often a loop has said that it is well again.
fn well_again(daemon: &Daemon) -> usize {
    daemon.process.log().matches("the loop has recovered").count()
}

/// The daemon lives, says what is wrong, and answers what it cannot know quickly and by name.
fn says_that_its_store_is_away(daemon: &Daemon) {
    assert_eq!(daemon.http("GET", "/livez", "").0, 200);
    assert_eq!(daemon.http("GET", "/readyz", "").0, 503);
    assert_eq!(metric(daemon, "tenure_store_up", &[]), 0.0);
    let (asked, lateness) = (Instant::now(), Lateness::watch());
    let (status, problem) = daemon.http("GET", "/v1/groups/ingest/registries/devices/claims/direct-1-0", "");
    assert_eq!(
        (status, &problem["code"]),
        (503, &"store_unavailable".into()),
        "{problem}"
    );
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(2) + lateness.so_far(), "{took:?}");
}
