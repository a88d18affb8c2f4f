//! `tenure sessions`, and sessions wherever else they show, over a daemon.

use serde_json::{Value, json};
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON, run, tenure};

fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|column| !column.is_empty())
        .collect()
}

fn sessions(daemon: &Daemon, args: &[&str]) -> Ran {
    daemon.run(&[&["sessions"], args, &["--group", "g"]].concat())
}

#[track_caller]
fn done(ran: Ran) -> String {
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    ran.out
}

#[track_caller]
fn attach(daemon: &Daemon, session: &str, tenure: &str, more: Value) -> Value {
    let mut body = json!({"tenure": tenure, "connection": "c"});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    let path = format!("/v1/groups/g/sessions/{session}");
    let (status, answer) = daemon.http("PUT", &path, &body.to_string());
    assert!(matches!(status, 200 | 201), "{answer}");
    answer
}

#[track_caller]
fn detach(daemon: &Daemon, session: &str, tenure: &str) {
    let path = format!("/v1/groups/g/sessions/{session}/connections/c?tenure={tenure}");
    assert_eq!(daemon.http("DELETE", &path, "").0, 204);
}

#[test]
fn sessions_are_listed_looked_up_and_deleted() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let gw = daemon.join("g", "gw", 60_000);
    attach(&daemon, "s1", &gw, json!({"alias": "caster", "data": {"x": 1, "y": 2}}));
    let epoch = attach(&daemon, "s2", &gw, json!({}))["epoch"].clone();
    detach(&daemon, "s2", &gw);
    let out = done(sessions(&daemon, &[]));
    let lines: Vec<_> = out.lines().map(columns).collect();
    assert_eq!(
        lines[0],
        [
            "SESSION",
            "STATE",
            "CONNECTIONS",
            "ALIAS",
            "REAP IN",
            "FIELDS",
            "UPDATED AT",
            "EPOCH"
        ]
    );
    assert_eq!(lines[1][..6], ["s1", "active", "1", "caster", "-", "2"]);
    assert_eq!(lines[2][..4], ["s2", "disconnected", "0", "-"]);
    assert_eq!((lines[2][7], lines.len()), (epoch.to_string().as_str(), 3));

    let page = sessions(&daemon, &["--state", "active", "--json"]).json();
    assert_eq!(page, daemon.http("GET", "/v1/groups/g/sessions?state=active", "").1);
    assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
    for by in [&["s1"][..], &["--alias", "caster"]] {
        let one = sessions(&daemon, &[by, &["--json"]].concat()).json();
        assert_eq!(one, page["sessions"][0]);
        assert_eq!(one["data"], json!({"x": 1, "y": 2}));
    }
    for (by, message) in [
        (&["s9"][..], "tenure: session \"s9\" not found in group \"g\"\n"),
        (&["--alias", "a9"], "tenure: alias \"a9\" not found in group \"g\"\n"),
    ] {
        let none = sessions(&daemon, by);
        assert_eq!(
            (none.code, none.err.as_str(), none.out.as_str()),
            (Some(1), message, "")
        );
    }
    let first = sessions(&daemon, &["--limit", "1", "--json"]).json();
    let rest = sessions(&daemon, &["--after", first["next"].as_str().unwrap(), "--json"]).json();
    assert_eq!(rest["sessions"][0]["session"], "s2");
    let orphans = sessions(&daemon, &["--orphans", "--json"]).json();
    assert_eq!(orphans, json!({"orphans": [], "skipped": 0}));

    let mixed = sessions(&daemon, &["delete", "s2", "s1", "s9"]);
    assert_eq!(
        (mixed.code, mixed.err.as_str()),
        (
            Some(1),
            "tenure: the session s1 in the group g has connections: 1; it stays\ntenure: session \"s9\" not found in group \"g\"\n"
        )
    );
    assert_eq!(
        columns(mixed.out.lines().nth(1).unwrap()),
        ["s2", "deleted", epoch.to_string().as_str()]
    );
    detach(&daemon, "s1", &gw);
    let gone = sessions(&daemon, &["rm", "s1", "--json"]).json();
    assert_eq!(
        (&gone["sessions"][0]["session"], &gone["sessions"][0]["outcome"]),
        (&json!("s1"), &json!("deleted"))
    );
    assert_eq!(sessions(&daemon, &["--json"]).json(), json!({"sessions": []}));
}

#[test]
fn exclusive_options_are_refused() {
    for (args, must_say) in [
        (&["s1", "--state", "active"][..], "cannot be used with"),
        (&["s1", "--alias", "a"], "cannot be used with"),
        (&["--alias", "a", "--state", "orphan"], "cannot be used with"),
        (&["--orphans", "--state", "orphan"], "cannot be used with"),
        (&["--orphans", "--after", "x"], "cannot be used with"),
        (&["--state", "gone"], "use active, disconnected or orphan"),
        (&["--overdue", "soon", "--orphans"], "is not a duration"),
        (&["--overdue", "5s"], "--orphans"),
        (&["delete"], "<SESSION>"),
        (&["a/b"], "the session \"a/b\" has '/' at position 2"),
    ] {
        let mut command = tenure();
        command.arg("sessions").args(args);
        let ran = run(command);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(must_say), "{args:?}: {}", ran.err);
    }
}

#[test]
fn reaper_deletes_orphans_and_reports_them() {
    let daemon = Daemon::start(&["--store", "memory:", "--sessions-grace", "1s"]);
    let gw = daemon.join("g", "gw", 20_000);
    let epoch = attach(&daemon, "s1", &gw, json!({"alias": "caster"}))["epoch"].clone();
    attach(&daemon, "s2", &gw, json!({"grace_ms": 120_000}));
    attach(&daemon, "s3", &gw, json!({}));
    for session in ["s1", "s2"] {
        detach(&daemon, session, &gw);
    }
    let seen = sessions(&daemon, &["s1", "--json"]);
    if seen.code == Some(0) {
        assert!(seen.json()["reap_in_ms"].as_u64() <= Some(1_000), "{}", seen.out);
    }
    let events = || daemon.run(&["events", "--group", "g", "--type", "session_reaped"]).out;
    wait::until("the session is reaped", SOON, || {
        // A store that stood still with its machine reaps nothing for a full ttl.
        daemon.beat("g", &[&gw], 20_000);
        events().contains("s1 alias=caster")
    });
    let told = events();
    assert!(
        told.contains(&format!("epoch={epoch}")) && told.contains("pass="),
        "{told}"
    );
    let left = sessions(&daemon, &["--json"]).json();
    let names: Vec<_> = left["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["session"])
        .collect();
    assert_eq!(names, ["s2", "s3"]);

    // The status is that of the janitor's last look.
    let mut status = Value::Null;
    wait::until("the status tells of two sessions", SOON, || {
        status = daemon.run(&["status", "--json"]).json();
        let group = &status["groups"][0];
        (&group["group"], &group["sessions"]) == (&json!("g"), &json!(2))
    });
    let loops: Vec<_> = status["loops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|state| &state["name"])
        .collect();
    assert!(
        loops.contains(&&json!("reaper")) && loops.contains(&&json!("reconcile")),
        "{loops:?}"
    );
    let members = done(daemon.run(&["members", "--group", "g"]));
    assert_eq!(columns(members.lines().nth(1).unwrap())[6], "1", "{members}");
    let swept = daemon.run(&["sweep", "--group", "g", "--reconcile", "--json"]).json();
    assert_eq!((&swept["repaired"], &swept["reaped"]), (&json!({}), &json!(0)));
}

#[test]
fn orphans_are_listed_while_the_brake_holds_the_reaper() {
    let brake = ["--brake-floor", "2", "--brake-share", "0.4"];
    let daemon = Daemon::start(&[&["--store", "memory:"], &brake[..]].concat());
    let gw = daemon.join("g", "gw", 60_000);
    let epoch = attach(&daemon, "s1", &gw, json!({"grace_ms": 3000}))["epoch"].clone();
    let tenures = ["m1", "m2"].map(|member| daemon.join("g", member, 60_000));
    // Both together, however long the joins took.
    daemon.beat("g", &tenures, 1_000);
    detach(&daemon, "s1", &gw);
    let mut found = Value::Null;
    wait::until("it is an orphan", SOON, || {
        found = sessions(&daemon, &["--orphans", "--json"]).json();
        found["orphans"] != json!([])
    });
    assert_eq!(
        (&found["orphans"][0]["session"], &found["orphans"][0]["epoch"]),
        (&json!("s1"), &epoch)
    );
    let out = done(sessions(&daemon, &["--orphans"]));
    assert_eq!(
        columns(out.lines().next().unwrap()),
        ["SESSION", "OVERDUE", "DISCONNECTED AT", "EPOCH"]
    );
    assert_eq!(columns(out.lines().nth(1).unwrap())[0], "s1");
    let none = sessions(&daemon, &["--orphans", "--overdue", "1h", "--json"]).json();
    assert_eq!(none["orphans"], json!([]));
    let dry = daemon.run(&["sweep", "--group", "g", "--dry-run"]);
    assert!(dry.out.ends_with("\n\nORPHAN\ns1\n"), "{}", dry.out);
    assert!(
        done(sessions(&daemon, &["s1"])).contains("orphan"),
        "it reads as what it is"
    );
    let swept = daemon.run(&["sweep", "--group", "g", "--force", "--json"]).json();
    assert_eq!(swept["reaped"], 1, "{swept}");
}

#[test]
fn a_connection_that_is_too_old_is_dropped_by_a_reconcile() {
    let daemon = Daemon::start(&["--store", "memory:", "--sessions-max-age", "1s"]);
    let gw = daemon.join("g", "gw", 60_000);
    attach(&daemon, "s1", &gw, json!({}));
    let mut told = String::new();
    wait::until("it is too old", SOON, || {
        let ran = daemon.run(&["sweep", "--group", "g", "--reconcile"]);
        told = ran.err;
        !told.contains("index agree")
    });
    assert!(told.ends_with("tenure: repaired: aged_connection=1\n"), "{told}");
    assert_eq!(sessions(&daemon, &["s1", "--json"]).json()["state"], "disconnected");
    let why = daemon
        .run(&["events", "--group", "g", "--type", "session_disconnected"])
        .out;
    assert!(why.contains("s1 max_age"), "{why}");
}
