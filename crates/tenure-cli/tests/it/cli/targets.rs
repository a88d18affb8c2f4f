//! `tenure targets`: what there is to work on, looked at and changed.

use serde_json::{Value, json};
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON};

fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|column| !column.is_empty())
        .collect()
}

fn targets(daemon: &Daemon, args: &[&str]) -> Ran {
    // Options stand behind a subcommand, where there is one.
    daemon.run(&[&["targets"], args, &["--group", "g"]].concat())
}

#[track_caller]
fn done(ran: Ran) -> String {
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    ran.out
}

#[test]
fn targets_are_added_listed_paused_resumed_and_removed() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let out = done(targets(&daemon, &["add", "endpoint-1", "endpoint-2"]));
    let lines: Vec<_> = out.lines().map(columns).collect();
    assert_eq!(lines[0], ["TARGET", "OUTCOME", "PAUSED", "WEIGHT"]);
    assert_eq!(
        lines[1..],
        [["endpoint-1", "added", "no", "1"], ["endpoint-2", "added", "no", "1"]]
    );
    let set = targets(&daemon, &["set", "endpoint-2", "--weight", "7", "--json"]).json();
    assert_eq!(
        set,
        json!({"targets": [{"target": "endpoint-2", "outcome": "set", "paused": false, "weight": 7}]})
    );
    let paused = targets(&daemon, &["pause", "endpoint-2", "--json"]).json();
    assert_eq!(
        paused["targets"][0],
        json!({"target": "endpoint-2", "outcome": "paused", "paused": true, "weight": 7}),
        "its weight stays"
    );
    let seen = daemon.http("GET", "/v1/groups/g/targets/endpoint-2", "").1;
    assert_eq!((&seen["paused"], &seen["weight"]), (&json!(true), &json!(7)));
    done(targets(&daemon, &["resume", "endpoint-2"]));

    let mixed = targets(&daemon, &["remove", "endpoint-2", "endpoint-3"]);
    assert_eq!(mixed.code, Some(1));
    assert_eq!(mixed.err, "tenure: target \"endpoint-3\" not found in group \"g\"\n");
    assert_eq!(
        columns(mixed.out.lines().nth(1).unwrap()),
        ["endpoint-2", "removed", "-", "-"]
    );
    let short = targets(&daemon, &["rm", "endpoint-1", "--json"]).json();
    assert_eq!(
        short,
        json!({"targets": [{"target": "endpoint-1", "outcome": "removed"}]}),
        "the short word does the same"
    );
    let missing = targets(&daemon, &["pause", "endpoint-3"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""));
    let kinds = ["--type", "target_changed", "--group", "g", "--json"];
    let events = daemon.run(&[&["events"], &kinds[..]].concat()).json();
    let told: Vec<_> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["reason"])
        .collect();
    assert_eq!(
        told,
        ["added", "added", "changed", "changed", "changed", "removed", "removed"]
    );
}

#[test]
fn targets_list_preferred_node_and_holder() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    done(targets(&daemon, &["add", "endpoint-1", "endpoint-2", "endpoint-3"]));
    let nowhere = done(targets(&daemon, &[]));
    let lines: Vec<_> = nowhere.lines().map(columns).collect();
    assert_eq!(
        lines[0],
        ["TARGET", "PAUSED", "WEIGHT", "PREFERRED", "HOLDER", "ALIVE", "TOKEN"]
    );
    assert_eq!(lines[1], ["endpoint-1", "no", "1", "-", "-", "-", "-"]);
    let (a, b) = (daemon.join("g", "node-1", 20_000), daemon.join("g", "node-2", 20_000));
    let granted = daemon.granted("g", "endpoint-2", &[&a, &b], 60_000);
    // The command shows the same as the daemon; a store without a daemon works in the same way.
    let page = targets(&daemon, &["--json"]).json();
    assert_eq!(page, daemon.http("GET", "/v1/groups/g/targets", "").1);
    let listed = page["targets"].as_array().unwrap();
    assert!(listed.iter().all(|target| target["preferred"].is_string()), "{page}");
    assert_eq!(
        (
            &listed[1]["holder"],
            &listed[1]["alive"],
            &listed[1]["token"],
            &listed[0]["holder"]
        ),
        (&json!("node-1"), &json!(true), &granted["token"], &Value::Null)
    );
    let one = targets(&daemon, &["endpoint-2", "--json"]).json();
    assert_eq!(one, listed[1]);
    let row = done(targets(&daemon, &["endpoint-2"]));
    let row = columns(row.lines().nth(1).unwrap())
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    assert_eq!(
        row[4..],
        ["node-1".to_owned(), "yes".to_owned(), granted["token"].to_string()]
    );
    let none = targets(&daemon, &["endpoint-9"]);
    assert_eq!(
        (none.code, none.err.as_str()),
        (Some(1), "tenure: target \"endpoint-9\" not found in group \"g\"\n")
    );

    let first = targets(&daemon, &["--limit", "2", "--json"]).json();
    let next = first["next"].as_str().expect("there is more");
    let rest = targets(&daemon, &["--after", next, "--json"]).json();
    assert_eq!(rest["targets"], json!([listed[2]]));
}

#[test]
fn leases_as_a_table_and_as_json_and_everywhere_else_they_show() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let (a, b) = (daemon.join("g", "node-1", 20_000), daemon.join("g", "node-2", 20_000));
    let leases = |args: &[&str]| daemon.run(&[&["leases", "--group", "g"], args].concat());
    assert_eq!(leases(&["--json"]).json(), json!({"leases": []}));
    let granted = daemon.granted("g", "poll-1", &[&a, &b], 20_000);
    let token = granted["token"].as_u64().expect("a token");
    daemon.granted("g", "poll-2", &[&b, &a], 20_000);
    daemon.beat("g", &[&a, &b], 60_000);
    let out = done(leases(&[]));
    let lines: Vec<_> = out.lines().map(columns).collect();
    assert_eq!(lines[0], ["LEASE", "HOLDER", "ALIVE", "EXPIRES IN", "TOKEN", "TENURE"]);
    assert_eq!(lines[1][..3], ["poll-1", "node-1", "yes"]);
    assert_eq!(lines[1][4..], [token.to_string().as_str(), &a]);
    assert_eq!(lines.len(), 3);
    let of_b = leases(&["--holder", "node-2", "--json"]).json();
    assert_eq!(
        (&of_b["leases"][0]["lease"], of_b["leases"].as_array().unwrap().len()),
        (&json!("poll-2"), 1)
    );
    let one = leases(&["poll-1", "--json"]).json();
    assert_eq!(
        (&one["token"], &one["alive"], &one["holder"]),
        (&json!(token), &json!(true), &json!("node-1"))
    );
    let none = leases(&["poll-3"]);
    assert_eq!(
        (none.code, none.err.as_str()),
        (Some(1), "tenure: lease \"poll-3\" is not held in group \"g\"\n")
    );

    let members = daemon.run(&["members", "--group", "g", "--json"]).json();
    assert_eq!(
        members["members"][0]["holdings"],
        json!({"claims": 0, "leases": 1, "connections": 0})
    );
    daemon.release("g", "poll-1", &a, token, Some("node-2"));
    let out = done(daemon.run(&["events", "--group", "g", "--type", "lease_granted,lease_released"]));
    let details: Vec<_> = out.lines().skip(1).map(|line| columns(line)[4]).collect();
    assert_eq!(details[0], format!("poll-1 token={token}"));
    assert_eq!(details[2], format!("poll-1 handed_off token={token} to=node-2"));

    daemon.http("DELETE", &format!("/v1/groups/g/tenures/{b}"), "");
    let released = || {
        let out = daemon.run(&["events", "--group", "g", "--type", "lease_released"]).out;
        out.lines()
            .any(|line| line.contains("poll-2 left token=") && line.contains("pass="))
    };
    wait::until("the janitor has released it", SOON, released);
    // A lease by its whole name, or by its own alone where no member is called like it.
    for id in ["lease:poll-2", "poll-2"] {
        let why = done(daemon.run(&["why", id, "--group", "g"]));
        assert!(why.starts_with("lease poll-2 in group g"), "{why}");
        assert!(why.contains(&b) && why.contains("left"), "{why}");
    }
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    for (transition, count) in [("acquired", 2), ("handed_off", 1)] {
        let line = format!("tenure_lease_transitions_total{{group=\"g\",transition=\"{transition}\"}} {count}");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}
