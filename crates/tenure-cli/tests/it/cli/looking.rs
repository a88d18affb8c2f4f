//! What commands print: tables for people, JSON for programs, both stable.

use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON, run, said, tenure};

fn some_daemon() -> (Daemon, String) {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let body = r#"{"member":"gw-1","ttl_ms":60000,"labels":{"zone":"eu","rack":"r 7"}}"#;
    let joined = daemon.http("POST", "/v1/groups/g/members", body).1;
    let tenure = joined["tenure"].as_str().unwrap().to_owned();
    daemon.claim("g", "devices", &tenure, &["cam-1".to_owned(), "cam-2".to_owned()]);
    daemon.join("g", "gw-2", 60_000);
    (daemon, tenure)
}

#[track_caller]
fn done(ran: Ran) -> String {
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    ran.out
}

fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|column| !column.is_empty())
        .collect()
}

#[test]
fn members_as_a_table_and_as_json() {
    let (daemon, tenure) = some_daemon();
    let out = done(daemon.run(&["members", "--group", "g"]));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        columns(lines[0]),
        [
            "MEMBER",
            "ALIVE",
            "EXPIRES IN",
            "TTL",
            "CLAIMS",
            "LEASES",
            "CONNECTIONS",
            "JOINED AT",
            "TENURE",
            "LABELS"
        ]
    );
    let row = columns(lines[1]);
    assert_eq!(row[..2], ["gw-1", "yes"]);
    assert_eq!(row[3..7], ["1m00s", "2", "0", "0"]);
    assert_eq!(row[8..], [&tenure, "rack=r 7,zone=eu"]);
    assert_eq!(
        (columns(lines[2])[0], columns(lines[2])[9], lines.len()),
        ("gw-2", "-", 3)
    );

    let all = daemon.run(&["members", "--group", "g", "--json"]).json();
    assert_eq!(
        all["members"][0]["labels"],
        serde_json::json!({"rack": "r 7", "zone": "eu"})
    );
    assert_eq!(all["members"][0]["holdings"]["claims"], 2);
    assert_eq!(
        (all["members"].as_array().unwrap().len(), &all["next"]),
        (2, &Value::Null)
    );

    let one = daemon.run(&["members", "gw-2", "--group", "g", "--json"]).json();
    assert_eq!(one["member"], "gw-2");
    let none = daemon.run(&["members", "gw-3", "--group", "g"]);
    assert_eq!(
        (none.code, none.err.as_str()),
        (Some(1), "tenure: member \"gw-3\" has no tenure in group \"g\"\n")
    );
}

#[test]
fn a_listing_stops_at_its_limit_and_says_so() {
    let (daemon, _) = some_daemon();
    let ran = daemon.run(&["members", "--group", "g", "--limit", "1"]);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 2));
    assert!(
        ran.err.starts_with("tenure: there is more: --limit 10 or --after "),
        "{}",
        ran.err
    );
    let first = daemon
        .run(&["members", "--group", "g", "--limit", "1", "--json"])
        .json();
    let next = first["next"].as_str().unwrap();
    let rest = daemon
        .run(&["members", "--group", "g", "--after", next, "--json"])
        .json();
    assert_eq!(rest["members"][0]["member"], "gw-2");
}

#[test]
fn claims_as_a_table_and_as_json() {
    let (daemon, tenure) = some_daemon();
    let claims = |more: &[&str]| daemon.run(&[&["claims", "--group", "g", "--registry", "devices"], more].concat());
    let out = done(claims(&[]));
    let lines: Vec<_> = out.lines().map(columns).collect();
    assert_eq!(
        lines,
        [
            vec!["KEY", "OWNER", "ALIVE", "TENURE"],
            vec!["cam-1", "gw-1", "yes", &tenure],
            vec!["cam-2", "gw-1", "yes", &tenure],
        ]
    );
    let claim = |key| serde_json::json!({"key": key, "owner": "gw-1", "tenure": tenure, "alive": true});
    assert_eq!(
        claims(&["--json"]).json(),
        serde_json::json!({"claims": [claim("cam-1"), claim("cam-2")]})
    );
    assert_eq!(claims(&["cam-2", "--json"]).json(), claim("cam-2"));
    assert_eq!(
        claims(&["--owner", "gw-2", "--json"]).json(),
        serde_json::json!({"claims": []})
    );
    let none = claims(&["cam-3"]);
    assert_eq!(
        (none.code, none.err.as_str()),
        (
            Some(1),
            "tenure: key \"cam-3\" has no owner in registry \"devices\" of group \"g\"\n"
        )
    );
}

#[test]
fn events_as_a_table_as_json_and_by_type() {
    let (daemon, tenure) = some_daemon();
    daemon.http("DELETE", &format!("/v1/groups/g/tenures/{tenure}"), "");
    wait::until("the claims are evicted", SOON, || {
        daemon.run(&["events", "--group", "g"]).out.contains("evicted")
    });
    let out = done(daemon.run(&["events", "--group", "g"]));
    let mut lines: Vec<_> = out.lines().map(columns).collect();
    // A stall of the machine makes other events.
    lines.retain(|line| !line[2].starts_with("group_"));
    assert_eq!(lines[0], ["AT", "ID", "TYPE", "TENURE", "DETAILS"]);
    let kinds: Vec<_> = lines[1..].iter().map(|line| line[2]).collect();
    assert_eq!(kinds, ["joined", "joined", "left", "evicted"]);
    assert!(
        lines[4][4].starts_with("left devices=2 devices/cam-1,devices/cam-2 pass="),
        "{out}"
    );

    let page = daemon
        .run(&[
            "events",
            "--group",
            "g",
            "--type",
            "left,evicted",
            "--last",
            "1",
            "--json",
        ])
        .json();
    let events = page["events"].as_array().unwrap();
    assert_eq!(
        (events.len(), &events[0]["type"], &page["missed"]),
        (1, &Value::from("evicted"), &Value::from(false))
    );
    let newest = events[0]["id"].as_u64().unwrap();
    // The position after all events that were read, also those of other types.
    let next: u64 = page["next"].as_str().unwrap().parse().unwrap();
    assert!(next >= newest, "{page}");

    let ids = |which: &[&str]| -> Vec<u64> {
        let page = daemon
            .run(&[&["events", "--group", "g", "--json"], which].concat())
            .json();
        let events = page["events"].as_array().unwrap().iter();
        events.map(|event| event["id"].as_u64().unwrap()).collect()
    };
    let all = ids(&[]);
    assert!(all.contains(&next), "{next} of {all:?}");
    let place = all.iter().position(|id| *id == newest).unwrap();
    assert_eq!(
        ids(&["--after", &all[place - 2].to_string()])[..2],
        all[place - 1..=place]
    );
    let last = ids(&["--last", "3"]);
    assert!(all.windows(2).any(|pair| pair == &last[..2]), "{last:?} of {all:?}");
    assert!(last.len() == 3 && last[2] >= newest && last.is_sorted(), "{last:?}");
}

#[test]
fn followed_events_come_as_they_happen_also_after_an_outage() {
    let (daemon, tenure) = some_daemon();
    let lines = daemon.spawn(&["events", "--group", "g", "--follow"]);
    let documents = daemon.spawn(&["events", "--group", "g", "--follow", "--json", "--last", "1"]);
    said(&lines, "joined");
    // After a stall of the machine the last event is another one.
    said(&documents, "\"type\"");
    daemon.process.pause().unwrap();
    said(&lines, "waiting for it");
    said(&documents, "waiting for it");
    daemon.process.resume().unwrap();
    daemon.http("DELETE", &format!("/v1/groups/g/tenures/{tenure}"), "");
    said(&lines, "  left                  gw-1@");
    said(&documents, "\"type\":\"left\"");
    let log = documents.log();
    let events: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ids: Vec<_> = events.iter().map(|event| event["id"].as_u64().unwrap()).collect();
    let page = daemon.run(&["events", "--group", "g", "--after", &ids[0].to_string(), "--json"]);
    let page = page.json();
    let after = page["events"].as_array().unwrap().iter();
    let after: Vec<_> = after.map(|event| event["id"].as_u64().unwrap()).collect();
    assert!(after.starts_with(&ids[1..]), "none twice, none left out: {log}");
}

#[test]
fn followed_events_tell_what_is_missing() {
    let (daemon, _) = some_daemon();
    let documents = daemon.spawn(&["events", "--group", "g", "--follow", "--json", "--after", "1"]);
    said(&documents, "\"joined\"");
    let first = documents.log().lines().next().map(str::to_owned).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["missed"]["after"], 1, "{first}");
    assert!(first["missed"]["resumes_after"].as_u64().unwrap() > 1, "{first}");
    let ran = daemon.run(&["events", "--group", "g", "--after", "1"]);
    assert!(ran.err.contains("events are missing here"), "{}", ran.err);
}

#[test]
fn why_shows_member_tenure_and_key() {
    let (daemon, tenure) = some_daemon();
    let why = |id: &str| daemon.run(&["why", id, "--group", "g"]);
    let unknown = why("cam-1");
    assert_eq!(
        unknown.err,
        "tenure: if \"cam-1\" is a key, name its registry: REGISTRY/cam-1\n"
    );
    assert!(done(why("gw-1")).contains("joined"));
    assert!(done(why("devices/cam-1")).contains("which is alive"));
    daemon.http("DELETE", &format!("/v1/groups/g/tenures/{tenure}?expel=true"), "");
    wait::until("the claims are evicted", SOON, || {
        why("devices/cam-1").out.contains("removed")
    });
    assert!(done(why(&tenure)).contains("was expelled by an operator"));
    // A key alone is enough once events know its registry.
    let out = done(why("cam-1"));
    assert!(
        out.contains("key devices/cam-1") && out.contains("expelled") && out.contains("not owned"),
        "{out}"
    );
    let told = daemon
        .run(&["why", "cam-1", "--registry", "devices", "--group", "g", "--json"])
        .json();
    assert_eq!(told["subject"], "key devices/cam-1 in group g");
    assert!(why("nobody").out.contains("not a member"));
    assert_eq!(why("a/b/c").code, Some(2));
}

#[test]
fn status_shows_the_daemon_its_store_groups_and_loops() {
    let (daemon, _) = some_daemon();
    wait::until("both members were seen", SOON, || {
        let status = daemon.run(&["status", "--json"]).json();
        status["groups"][0]["members"] == 2
    });
    let status = daemon.run(&["status", "--json"]).json();
    assert_eq!(
        (&status["store"]["place"], &status["store"]["up"]),
        (&Value::from("memory:"), &Value::from(true))
    );
    assert_eq!(
        (&status["groups"][0]["group"], &status["groups"][0]["members"]),
        (&Value::from("g"), &Value::from(2))
    );
    assert!(
        status["loops"]
            .as_array()
            .unwrap()
            .iter()
            .any(|state| state["name"] == "janitor"),
        "{status}"
    );
    let out = done(daemon.run(&["status"]));
    assert!(out.starts_with(&format!("daemon  {}  version ", daemon.url())), "{out}");
    assert!(out.contains("\nstore   memory:  up\n"), "{out}");
    let headers: Vec<_> = out
        .lines()
        .filter(|line| line.starts_with("GROUP") || line.starts_with("LOOP"))
        .map(columns)
        .collect();
    assert_eq!(
        headers,
        [
            vec![
                "GROUP",
                "MEMBERS",
                "SETTLED",
                "BRAKE",
                "LEASES",
                "SESSIONS",
                "DISCONNECTED",
                "RELEASING",
                "LAST EVENT",
                "SEEN BEFORE"
            ],
            vec!["LOOP", "RUNS", "FAILURES", "PANICS", "LAST SUCCESS", "LAST ERROR"],
        ]
    );
}

#[test]
fn reconcile_of_an_unsettled_group_does_not_say_that_all_agrees() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    // A new group of a new store waits for max_ttl.
    let url = server.url();
    let joined = run_tenure(&["join", "--store", &url, "--group", "g", "--member", "a", "--", "true"]);
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    let swept = run_tenure(&["sweep", "--store", &url, "--group", "g", "--reconcile"]);
    assert!(
        swept.err.contains("since the group is unsettled until") && !swept.err.contains("agree"),
        "{}",
        swept.err
    );
}

fn run_tenure(args: &[&str]) -> Ran {
    let mut command = tenure();
    command.args(args);
    run(command)
}

#[test]
fn sweep_reports_what_it_does_or_would_do() {
    let (daemon, _) = some_daemon();
    let dry = daemon.run(&["sweep", "--group", "g", "--dry-run", "--json"]).json();
    assert_eq!(
        (&dry["dry_run"], &dry["doomed"]),
        (&Value::from(true), &serde_json::json!([]))
    );
    let swept = daemon.run(&["sweep", "--group", "g", "--force", "--json"]).json();
    assert_eq!(
        (&swept["ended"], &swept["evicted_total"]),
        (&Value::from(0), &Value::from(0))
    );
    assert!(swept["pass"].as_str().unwrap().starts_with("cli-"), "{swept}");
    let ran = daemon.run(&["sweep", "--group", "g"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "TENURE  EVICTED  LEASES  CONNECTIONS  BY REGISTRY\n")
    );
    assert_eq!(
        ran.err,
        "tenure: 0 tenures lapsed, 0 claims evicted, 0 leases and 0 connections released, 0 sessions reaped\n"
    );
    let ran = daemon.run(&["sweep", "--group", "g", "--reconcile"]);
    assert!(
        ran.err.ends_with("tenure: sessions and their index agree\n"),
        "{}",
        ran.err
    );
    let ran = daemon.run(&["sweep", "--group", "g", "--dry-run"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "TENURE  REASON  CLAIMS  LEASES  CONNECTIONS  BRAKED\n")
    );
}

#[test]
fn brake_is_reported_and_lifted_by_force() {
    let daemon = Daemon::start(&["--store", "memory:", "--brake-floor", "2", "--brake-share", "0.4"]);
    let tenures: Vec<_> = (0..3).map(|n| daemon.join("g", &format!("m{n}"), 20_000)).collect();
    for (n, tenure) in tenures.iter().enumerate() {
        daemon.claim("g", "devices", tenure, &[format!("key-{n}")]);
    }
    // Together, however long the joins took.
    daemon.beat("g", &tenures, 1_000);
    let status = || daemon.run(&["sweep", "--group", "g", "--dry-run", "--json"]).json();
    wait::until("the brake holds all three back", SOON, || {
        let doomed = status()["doomed"].as_array().unwrap().clone();
        doomed.len() == 3 && doomed.iter().all(|one| one["braked"] == Value::Bool(true))
    });
    let ran = daemon.run(&["sweep", "--group", "g"]);
    assert!(
        ran.err
            .contains("the brake holds back the holdings of 3 lapsed members (0 are present)"),
        "{}",
        ran.err
    );
    let swept = daemon.run(&["sweep", "--group", "g", "--force"]);
    assert_eq!(
        (swept.code, swept.err.contains("brake")),
        (Some(0), false),
        "{}",
        swept.err
    );
    // After the brake is lifted, this command or the daemon's janitor may remove them.
    let events = || {
        daemon
            .run(&["events", "--group", "g", "--type", "sweep_unbraked,evicted", "--json"])
            .json()
    };
    wait::until("all three are evicted", SOON, || {
        events()["events"].as_array().unwrap().len() == 4
    });
    assert_eq!(events()["events"][0]["reason"], "operator");
}

#[test]
fn the_doctor_looks_at_the_way_the_clock_and_the_timing() {
    let (daemon, _) = some_daemon();
    let out = daemon.run(&["doctor"]);
    let lines: Vec<_> = out.out.lines().map(columns).collect();
    assert_eq!(lines[0], ["SEVERITY", "CHECK", "DETAIL"]);
    let checks: Vec<_> = lines[1..].iter().map(|line| line[1]).collect();
    assert!(checks.starts_with(&["reach", "offset", "timing"]), "{checks:?}");
    assert!(
        out.out
            .contains("ttl 30s: a heartbeat every 10s, each may take 500ms, margin 2500ms"),
        "{}",
        out.out
    );
    assert_eq!(out.code, Some(0), "{}", out.out);
    let bad = daemon.run(&["doctor", "--ttl", "500ms"]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.out.contains("the ttl 500ms is outside 1s"), "{}", bad.out);
    let findings = daemon.run(&["doctor", "--json"]).json();
    assert_eq!(findings["findings"][0]["check"], "reach");
}

#[test]
fn a_group_that_does_not_exist_is_an_error() {
    let (daemon, _) = some_daemon();
    daemon.join("ingest", "gw-1", 60_000);
    for args in [
        &["members"][..],
        &["members", "gw-1"],
        &["claims", "--registry", "r"],
        &["claims", "k", "--registry", "r", "--json"],
        &["leases"],
        &["leases", "l"],
        &["targets", "--json"],
        &["targets", "t"],
        &["sessions"],
        &["sessions", "s"],
        &["sessions", "--alias", "s"],
        &["sessions", "--orphans"],
        &["events"],
        &["why", "gw-1"],
        &["status"],
        &["sweep"],
        &["sweep", "--dry-run"],
    ] {
        let ran = daemon.run(&[args, &["--group", "ingset"]].concat());
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (
                Some(1),
                "",
                "tenure: error: no group \"ingset\"; did you mean \"ingest\"? groups: g, ingest\n"
            ),
            "{args:?}"
        );
    }
    // An empty listing of an existing group is not an error.
    assert_eq!(
        daemon.run(&["leases", "--group", "g", "--json"]).json(),
        serde_json::json!({"leases": []})
    );
    let events = ["events", "--group", "g", "--type", "evicted", "--json"];
    assert_eq!(daemon.run(&events).json()["events"], serde_json::json!([]));
    assert_eq!(
        daemon.run(&["groups"]).out.matches("ingset").count(),
        0,
        "looking makes no group"
    );
}

#[test]
fn followed_events_of_a_new_group_begin_with_its_first() {
    let (daemon, _) = some_daemon();
    let lines = daemon.spawn(&["events", "--group", "later", "--follow"]);
    daemon.join("later", "gw-1", 60_000);
    said(&lines, "  joined                gw-1@");
}

#[test]
fn commands_fail_without_a_daemon() {
    for args in [
        &["members"][..],
        &["claims", "--registry", "r"],
        &["leases"],
        &["leases", "l"],
        &["targets"],
        &["targets", "add", "t"],
        &["targets", "pause", "t"],
        &["events"],
        &["why", "a"],
        &["status"],
        &["sweep"],
    ] {
        let mut command = crate::support::tenure();
        command.args(args).args(["--store", "http://127.0.0.1:1"]);
        let ran = crate::support::run(command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(
            ran.err.contains("127.0.0.1:1") && ran.err.contains("tenure: error: "),
            "{args:?}: {}",
            ran.err
        );
    }
    let mut command = crate::support::tenure();
    command.args(["doctor", "--store", "http://127.0.0.1:1"]);
    let ran = crate::support::run(command);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains("ERROR") && ran.out.contains("is it running, and is the URL right?"),
        "{}",
        ran.out
    );
}

#[test]
fn closed_stdout_is_not_a_failure() {
    let (daemon, _) = some_daemon();
    let script = format!(
        "set -o pipefail; {} members --group g | true; {0} members --group g | head -1",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).env("TENURE_STORE", daemon.url());
    let ran = crate::support::run(command);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}
