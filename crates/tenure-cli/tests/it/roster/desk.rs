//! A day at the desk, in commands.

use serde_json::{Value, json};

use crate::support::{Daemon, Ran, said};

fn roster(daemon: &Daemon, args: &[&str]) -> Ran {
    daemon.run(&[&["roster"], args, &["--roster", "support"]].concat())
}

#[track_caller]
fn done(ran: Ran) -> String {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran.out
}

#[track_caller]
fn failed(ran: &Ran, must_say: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains(must_say), "{}", ran.err);
}

fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|column| !column.is_empty())
        .collect()
}

fn first_row(out: &str) -> Vec<&str> {
    columns(out.lines().nth(1).expect("a row"))
}

#[test]
fn providers_are_written_down_come_online_and_are_seen() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let put = done(roster(
        &daemon,
        &["put", "ana", "--name", "Ana Lovelace", "--capacity", "2"],
    ));
    assert_eq!(first_row(&put)[..5], ["ana", "changed", "yes", "no", "0/2"]);
    assert_eq!(first_row(&done(roster(&daemon, &["put", "ana"])))[1], "unchanged");
    done(roster(&daemon, &["put", "ben"]));
    failed(
        &roster(&daemon, &["heartbeat", "ana"]),
        "ana is offline; take it online first",
    );
    let online = done(roster(&daemon, &["online", "ana", "ben"]));
    assert_eq!(online.lines().count(), 3);
    assert_eq!(first_row(&online)[..4], ["ana", "changed", "yes", "yes"]);
    assert!(done(roster(&daemon, &["heartbeat", "ana"])).contains("recorded in the "));

    let listed = done(roster(&daemon, &["list", "--state", "online"]));
    let header = columns(listed.lines().next().unwrap()).join(" ");
    assert_eq!(
        header,
        "PROVIDER NAME ACTIVE ONLINE REACHABLE OCCUPANCY LAST HEARTBEAT AT"
    );
    assert_eq!(
        first_row(&listed)[..6],
        ["ana", "Ana Lovelace", "yes", "yes", "yes", "0/2"]
    );
    let page = roster(&daemon, &["list", "--json"]).json();
    assert_eq!(page["providers"].as_array().unwrap().len(), 2, "{page}");
    let one = roster(&daemon, &["show", "ana", "--json"]).json();
    assert_eq!(
        (&one["display_name"], &one["reachable"]),
        (&json!("Ana Lovelace"), &json!(true))
    );
    failed(
        &roster(&daemon, &["show", "zoe"]),
        "the roster support has no provider zoe",
    );
    let available = roster(&daemon, &["available", "--json"]).json();
    assert_eq!(
        available["providers"][0],
        json!({"provider": "ana", "occupancy": 0, "capacity": 2})
    );
    assert_eq!(roster(&daemon, &["availability", "--json"]).json()["count"], 2);
    assert_eq!(first_row(&done(roster(&daemon, &["stats"]))), ["2", "2", "0", "0", "0"]);

    done(roster(&daemon, &["deactivate", "ben"]));
    failed(&roster(&daemon, &["online", "ben"]), "an operator has deactivated ben");
    failed(&roster(&daemon, &["rm", "ana"]), "ana is online; it stays");
    done(roster(&daemon, &["activate", "ben"]));
    assert_eq!(
        first_row(&done(roster(&daemon, &["remove", "ben"])))[..2],
        ["ben", "removed"]
    );
    let log = done(roster(&daemon, &["log", "ben"]));
    let changes: Vec<_> = log.lines().skip(1).map(|line| columns(line)[2]).collect();
    assert_eq!(changes, ["online", "deactivated", "offline", "activated"], "{log}");
    let mixed = roster(&daemon, &["offline", "zoe", "ana"]);
    assert_eq!(
        (mixed.code, mixed.err.as_str()),
        (Some(1), "tenure: the roster support has no provider zoe\n")
    );
    assert_eq!(
        first_row(&mixed.out)[..4],
        ["ana", "changed", "yes", "no"],
        "what can be done is done"
    );
}

#[test]
fn engagements_are_reserved_moved_and_ended() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    done(roster(&daemon, &["put", "ana"]));
    done(roster(&daemon, &["put", "ben"]));
    failed(
        &roster(&daemon, &["reserve"]),
        "no provider of roster \"support\" is available",
    );
    done(roster(&daemon, &["online", "ana"]));
    let reserved = roster(&daemon, &["reserve", "call-1", "--expires-in", "5m", "--json"]).json();
    assert_eq!(
        (&reserved["engagement"], &reserved["provider"]),
        (&json!("call-1"), &json!("ana"))
    );
    assert!(reserved["expires_at"].is_string(), "{reserved}");
    failed(&roster(&daemon, &["reserve", "call-2"]), "no provider of roster");
    let moved = done(roster(
        &daemon,
        &["move", "call-1", "--to", "ben", "--status", "active", "--never-expires"],
    ));
    assert_eq!(first_row(&moved)[..4], ["call-1", "ben", "active", "-"]);
    let engaged = roster(&daemon, &["engage", "ana", "--id", "call-3", "--active", "--json"]).json();
    assert_eq!(engaged["status"], "active");
    failed(
        &roster(&daemon, &["engage", "ben", "--id", "call-3"]),
        "the engagement call-3 is active with ana; it stays",
    );
    assert_eq!(first_row(&done(roster(&daemon, &["end", "call-1"])))[2], "ended");
    failed(
        &roster(&daemon, &["end", "call-1", "--cancelled"]),
        "call-1 is ended with ben; it stays",
    );
    assert_eq!(
        roster(&daemon, &["engagement", "call-1", "--json"]).json()["status"],
        "ended"
    );
    failed(&roster(&daemon, &["engagement", "call-9"]), "no engagement call-9");
}

#[test]
fn settings_are_shown_and_changed() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    done(roster(&daemon, &["put", "ana"]));
    assert_eq!(
        first_row(&done(roster(&daemon, &["settings"])))[..4],
        ["1", "1m", "yes", "10s"]
    );
    let set = roster(
        &daemon,
        &["set", "--stale-after", "90s", "--require-heartbeat", "false", "--json"],
    )
    .json();
    assert_eq!(
        (&set["stale_after_ms"], &set["require_heartbeat"]),
        (&json!(90_000), &Value::Bool(false))
    );
    let out = done(daemon.run(&["status"]));
    assert!(out.contains("\nledger  memory:  up\n"), "{out}");
}

#[test]
fn default_capacity_is_set_for_all_and_put_back() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    done(roster(&daemon, &["put", "ana"]));
    done(roster(&daemon, &["put", "ben", "--capacity", "2"]));
    let capacity = |name| roster(&daemon, &["show", name, "--json"]).json()["capacity"].clone();
    done(roster(&daemon, &["set", "--default-capacity", "3"]));
    assert_eq!((capacity("ana"), capacity("ben")), (json!(3), json!(2)));
    let put = done(roster(&daemon, &["put", "ben", "--capacity", "default"]));
    assert_eq!(first_row(&put)[..2], ["ben", "changed"]);
    assert_eq!(capacity("ben"), json!(3));
}

#[test]
fn a_forgotten_roster_is_a_failure_that_names_the_others() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let without = |args: &[&str]| daemon.run(&[&["roster"], args].concat());
    failed(&without(&["stats"]), "no roster \"default\": there are no rosters yet");
    done(roster(&daemon, &["put", "ana"]));
    for read in [
        &["stats"][..],
        &["list"],
        &["available"],
        &["availability"],
        &["settings"],
        &["log"],
        &["show", "ana"],
        &["reserve"],
        &["engagement", "e1"],
    ] {
        let must_say = "no roster \"default\"; choose one with --roster or TENURE_ROSTER: support";
        failed(&without(read), must_say);
    }
}

#[test]
fn a_log_is_followed() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    done(roster(&daemon, &["put", "ana"]));
    done(roster(&daemon, &["deactivate", "ana"]));
    let lines = daemon.spawn(&["roster", "log", "--follow", "--roster", "support"]);
    let documents = daemon.spawn(&["roster", "log", "ana", "--follow", "--json", "--roster", "support"]);
    said(&lines, "  deactivated  ana  operator");
    said(&documents, "\"change\":\"deactivated\"");
    done(roster(&daemon, &["activate", "ana"]));
    said(&lines, "  activated    ana  operator");
    said(&documents, "\"change\":\"activated\"");
    assert_eq!(lines.log().matches("deactivated").count(), 1, "none twice");
}
