//! `tenure bench`: what it measures on each store, and that nothing of it is left, however it ends.

use serde_json::Value;
use tenure_testkit::server::Signal;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON, run, said, tenure};

const QUICK: [&str; 7] = ["bench", "--members", "30", "--for", "100ms", "--concurrency", "4"];

const LEASES: &str = "acquire_and_release";

/// Everything that is measured where leases are given out.
const ALL: [&str; 8] = [
    "join",
    "round_trip",
    "beats_in_batches",
    "beat",
    "claim_and_release",
    LEASES,
    "look_up_a_member",
    "list_100_members",
];

fn with(store: &str, args: &[&str]) -> Ran {
    let mut command = tenure();
    command.args(args).env("TENURE_STORE", store);
    run(command)
}

/// How many members there are; none while the group does not exist.
fn members(store: &str) -> usize {
    let listed = with(store, &["members", "--group", "bench", "--json"]);
    if listed.err.contains("no group \"bench\"") {
        return 0;
    }
    listed.json()["members"].as_array().unwrap().len()
}

/// Whether the group did so all the time: not where the store has stood still with its machine.
fn gives_leases(store: &str) -> bool {
    let unsettled = ["events", "--group", "bench", "--type", "group_unsettled", "--json"];
    with(store, &unsettled).json()["events"] == serde_json::json!([])
}

/// The kinds that were measured, each with numbers that can be.
#[track_caller]
fn measured(report: &Value) -> Vec<&str> {
    let rows = report["measured"].as_array().unwrap();
    let of = |row: &'static str, one: &Value| one[row].as_f64().unwrap();
    for one in rows {
        let in_order = ["p50_ms", "p95_ms", "p99_ms", "max_ms"].map(|row| of(row, one));
        assert!(of("count", one) > 0.0 && of("per_second", one) > 0.0, "{one}");
        assert!(in_order[0] > 0.0 && in_order.is_sorted(), "{one}");
    }
    rows.iter().map(|one| one["what"].as_str().unwrap()).collect()
}

#[test]
fn bench_measures_file_and_daemon_and_leaves_no_member() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--store", "memory:"]);
    for store in [format!("sqlite:{}/bench.db", dir.path().display()), daemon.url()] {
        let report = with(&store, &[&QUICK[..], &["--json"]].concat()).json();
        let all: Vec<_> = ALL
            .into_iter()
            .filter(|what| gives_leases(&store) || *what != LEASES)
            .collect();
        assert_eq!(measured(&report), all, "{report}");
        assert_eq!((&report["complete"], &report["error"]), (&true.into(), &Value::Null));
        assert_eq!(report["measured"][0]["count"], 30, "every member joins once");
        assert_eq!(members(&store), 0);
    }
    // For people, and a second time in the same group.
    let shown = with(&daemon.url(), &QUICK);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for what in [
        "P99 MS",
        "claim and release",
        "note: one client with 4 calls",
        &daemon.url(),
    ] {
        assert!(shown.out.contains(what), "{what}: {}", shown.out);
    }
}

#[test]
fn bench_of_an_unsettled_group_skips_leases() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let store = server.url();
    let report = with(&store, &[&QUICK[..], &["--json"]].concat()).json();
    let rest: Vec<_> = ALL.into_iter().filter(|what| *what != LEASES).collect();
    assert_eq!(measured(&report), rest, "{report}");
    let left_out = &report["not_measured"][0];
    assert_eq!(
        (&left_out["what"], &left_out["why"]),
        (&LEASES.into(), &"unsettled".into())
    );
    assert!(left_out["retry_in_ms"].as_u64().unwrap() > 0, "{left_out}");
    assert_eq!(members(&store), 0);

    let with_password = store.replace("://", "://default:hunter2@");
    let refused = with(&with_password, &QUICK);
    assert!(
        !format!("{}{}", refused.out, refused.err).contains("hunter2"),
        "{}",
        refused.err
    );
}

#[test]
fn a_group_of_others_is_left_alone() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    daemon.join("prod", "gw-1", 30_000);
    let refused = daemon.run(&[&QUICK[..], &["--group", "prod"]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("has members already, like gw-1"),
        "{}",
        refused.err
    );
    let (_, page) = daemon.http("GET", "/v1/groups/prod/events?types=joined,left,lapsed,evicted", "");
    assert_eq!(page["events"].as_array().unwrap().len(), 1, "{page}");
}

#[test]
fn interrupted_bench_leaves_no_member() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let bench = daemon.spawn(&["bench", "--members", "300", "--for", "1h"]);
    wait::until("all have joined", SOON, || has_joined(&bench, &daemon, 300));
    bench.signal(Signal::INT).unwrap();
    assert_eq!(bench.wait(SOON).unwrap().code(), Some(1), "{}", bench.log());
    said(&bench, "interrupted; its members have left");
    said(&bench, "round trip");
    assert_eq!(members(&daemon.url()), 0);
}

#[test]
fn bench_that_loses_the_store_reports_what_it_measured() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let bench = daemon.spawn(&["bench", "--members", "30", "--for", "1h", "--json"]);
    wait::until("all have joined", SOON, || has_joined(&bench, &daemon, 30));
    daemon.process.kill();
    assert_eq!(bench.wait(2 * SOON).unwrap().code(), Some(1), "{}", bench.log());
    said(&bench, "\"complete\": false");
    said(&bench, "\"what\": \"join\"");
    said(&bench, "not all of its members could leave, they lapse within 30s");
}

fn has_joined(bench: &tenure_testkit::Process, daemon: &Daemon, all: usize) -> bool {
    assert!(bench.is_running(), "{}", bench.log());
    members(&daemon.url()) == all
}

const FAILOVER: [&str; 6] = ["bench", "failover", "--rounds", "1", "--ttl", "1s"];

#[test]
fn failover_is_measured_and_leaves_no_member() {
    let daemon = Daemon::start(&["--store", "memory:", "--max-ttl", "1s"]);
    let report = with(&daemon.url(), &[&FAILOVER[..], &["--json"]].concat()).json();
    let rows = report["measured"].as_array().unwrap();
    let faults: Vec<_> = rows.iter().map(|row| row["fault"].as_str().unwrap()).collect();
    assert_eq!(faults, ["kill", "freeze", "stop"], "{report}");
    for row in rows {
        assert_eq!((&row["rounds"], &row["overlaps"]), (&1.into(), &0.into()), "{row}");
        assert!(row["takeover"]["max_ms"].as_f64().unwrap() > 0.0, "{row}");
        // A stop waits for no deadline.
        assert_eq!(row["detected"].is_null(), row["fault"] == "stop", "{row}");
    }
    let (_, page) = daemon.http("GET", "/v1/groups/bench-failover/members", "");
    assert_eq!(page["members"].as_array().unwrap().len(), 0, "{page}");

    // For people, once more in the same group.
    let shown = with(&daemon.url(), &[&FAILOVER[..], &["--faults", "stop"]].concat());
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(shown.out.contains("OVERLAPS"), "{}", shown.out);
}

#[test]
fn failover_is_for_stores_that_processes_share() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}/bench.db", dir.path().display());
    let refused = with(&file, &FAILOVER);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("start `tenure serve` on it"), "{}", refused.err);

    let daemon = Daemon::start(&["--store", "memory:"]);
    daemon.join("prod", "gw-1", 30_000);
    let refused = daemon.run(&[&FAILOVER[..], &["--group", "prod"]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("has members already, like gw-1"),
        "{}",
        refused.err
    );
}

#[test]
fn interrupted_failover_leaves_no_member() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let bench = daemon.spawn(&["bench", "failover", "--ttl", "60s"]);
    wait::until("the lease is held", SOON, || {
        let (status, _) = daemon.http("GET", "/v1/groups/bench-failover/leases/leader", "");
        status == 200
    });
    bench.signal(Signal::INT).unwrap();
    assert_eq!(bench.wait(SOON).unwrap().code(), Some(1), "{}", bench.log());
    said(&bench, "interrupted; the contenders have left");
    let (_, page) = daemon.http("GET", "/v1/groups/bench-failover/members", "");
    assert_eq!(page["members"].as_array().unwrap().len(), 0, "{page}");
}
