//! Sessions over HTTP: statuses, fields, outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_core::id::Group;
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::BeatPulse;
use tenure_core::session::{Attach, AttachOutcome, How, SessionStore};
use tenure_core::store::{Call, Store, StoreOptions};
use tenure_server::Settings;
use tokio::runtime::Handle;

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Answer, Daemon, promised};

const SESSIONS: &str = "/v1/groups/g/sessions";

async fn attach(daemon: &Daemon, session: &str, tenure: &str, connection: &str, more: Value) -> Answer {
    let mut body = json!({"tenure": tenure, "connection": connection});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    daemon.send("PUT", &format!("{SESSIONS}/{session}"), body).await
}

/// Attaches, expecting success; returns the answer.
async fn attached(daemon: &Daemon, session: &str, tenure: &str, connection: &str, more: Value) -> Value {
    let answer = attach(daemon, session, tenure, connection, more).await;
    let json = answer.json();
    let status = if json["outcome"] == "created" { 201 } else { 200 };
    assert_eq!(answer.status, status, "{answer:?}");
    json
}

async fn detach(daemon: &Daemon, session: &str, tenure: &str, connection: &str, epoch: Option<u64>) -> Answer {
    let epoch = epoch.map_or_else(String::new, |epoch| format!("&epoch={epoch}"));
    let path = format!("{SESSIONS}/{session}/connections/{connection}?tenure={tenure}{epoch}");
    daemon.delete(&path).await
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (status, code),
        "{answer:?}"
    );
    answer.json()
}

fn names(page: &Value) -> Vec<&str> {
    let sessions = page["sessions"].as_array().expect("sessions").iter();
    sessions
        .map(|session| session["session"].as_str().expect("an id"))
        .collect()
}

/// A daemon whose store's time is advanced by the test.
async fn stopped() -> (Daemon, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_767_225_600_000_000, 7));
    let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let daemon = Daemon::over(store, SystemClock::shared(), Settings::default()).await;
    (daemon, clock)
}

/// Advances the store's time in steps without a gap, while members keep beating.
async fn pass(daemon: &Daemon, clock: &ManualClock, time: Duration, living: &[&str]) {
    let (group, step) = (Group::new("g").expect("a good name"), Duration::from_millis(500));
    for _ in 0..time.as_millis() / step.as_millis() {
        clock.advance(step);
        daemon.store.beat_pulse(BeatPulse::default()).await.expect("a pulse");
        let steps = daemon.store.steps().expect("a store that is swept here");
        steps.tick(&group).await.expect("the store ticks");
        for tenure in living {
            let path = format!("/v1/groups/g/tenures/{tenure}/beat");
            assert_eq!(daemon.send("PUT", &path, json!({})).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_session_is_created_attached_left_and_resumed() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    refused(&daemon.get(&format!("{SESSIONS}/s")).await, 404, "session_not_found");
    let first = attach(&daemon, "s", &a, "c1", json!({"data": {"user": "u", "seen": [1, 2]}})).await;
    let json = first.json();
    assert_eq!(first.status, 201, "{first:?}");
    let epoch = json["epoch"].as_u64().expect("an epoch");
    assert_eq!(
        (
            &json["session"],
            &json["state"],
            &json["connections"],
            &json["outcome"],
            &json["data"]
        ),
        (
            &json!("s"),
            &json!("active"),
            &json!(1),
            &json!("created"),
            &json!({"user": "u", "seen": [1, 2]})
        )
    );
    assert_eq!(json["revision"], json["epoch"], "to be sent with the next beat");
    assert_eq!(json["created_at"], json["updated_at"]);
    for absent in ["alias", "grace_ms", "disconnected_at", "reap_in_ms"] {
        assert_eq!(json.get(absent), None, "{absent}");
    }
    let second = attached(&daemon, "s", &b, "c2", json!({})).await;
    assert_eq!(
        (&second["outcome"], &second["connections"], &second["data"]["user"]),
        (&json!("attached"), &json!(2), &json!("u"))
    );
    assert!(second["epoch"].as_u64() > Some(epoch));
    let members = daemon.get("/v1/groups/g/members/b").await.json();
    assert_eq!(members["holdings"]["connections"], 1);

    assert_eq!(detach(&daemon, "s", &a, "c1", None).await.status, 204);
    let seen = daemon.get(&format!("{SESSIONS}/s")).await.json();
    assert_eq!((&seen["state"], &seen["connections"]), (&json!("active"), &json!(1)));
    assert_eq!(detach(&daemon, "s", &b, "c2", None).await.status, 204);
    let seen = daemon.get(&format!("{SESSIONS}/s")).await.json();
    assert_eq!(
        (&seen["state"], &seen["connections"]),
        (&json!("disconnected"), &json!(0))
    );
    assert!(seen["disconnected_at"].is_string(), "{seen}");
    let left = seen["reap_in_ms"].as_u64().expect("a grace");
    assert!((1..=60_000).contains(&left), "{seen}");
    let stats = daemon.get("/v1/groups/g/sessions-stats").await.json();
    assert_eq!(stats, json!({"active": 0, "disconnected": 1, "orphans": 0}));

    let back = attached(&daemon, "s", &b, "c3", json!({"resume_only": true, "grace_ms": 5000})).await;
    assert_eq!(
        (
            &back["outcome"],
            &back["state"],
            &back["data"]["user"],
            &back["grace_ms"]
        ),
        (&json!("resumed"), &json!("active"), &json!("u"), &json!(5000))
    );
    detach(&daemon, "s", &b, "c3", back["epoch"].as_u64()).await;
    let left = daemon.get(&format!("{SESSIONS}/s")).await.json()["reap_in_ms"].clone();
    assert!((1..=5_000).contains(&left.as_u64().unwrap()), "{left}");
    let gone = attach(&daemon, "s", "z@7", "c", json!({})).await;
    assert_eq!(refused(&gone, 410, "tenure_ended")["reason"], "unknown");
}

#[tokio::test]
async fn a_late_detach_is_ignored_and_that_of_another_is_refused() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let early = attached(&daemon, "s", &a, "c", json!({})).await["epoch"].as_u64();
    attached(&daemon, "s", &a, "c", json!({})).await;
    for epoch in [early, None] {
        let path = if epoch.is_some() { "s" } else { "other" };
        assert_eq!(detach(&daemon, path, &a, "c", epoch).await.status, 204);
    }
    assert_eq!(
        daemon.get(&format!("{SESSIONS}/s")).await.json()["connections"],
        1,
        "it was attached again since"
    );
    let problem = refused(&detach(&daemon, "s", &b, "c", None).await, 409, "not_holder");
    assert_eq!((&problem["holder"], &problem["tenure"]), (&json!("a"), &json!(a)));
    attached(&daemon, "s", &b, "c", json!({})).await;
    let problem = refused(&detach(&daemon, "s", &a, "c", None).await, 409, "not_holder");
    assert_eq!(
        (&problem["holder"], &problem["tenure"]),
        (&json!("b"), &json!(b)),
        "it moved"
    );
    daemon.delete(&format!("/v1/groups/g/tenures/{b}")).await;
    refused(&detach(&daemon, "s", &b, "c", None).await, 410, "tenure_ended");
}

#[tokio::test]
async fn alias_is_unique_and_removed_with_its_session() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    let made = attached(&daemon, "s1", &a, "c", json!({"alias": "caster"})).await;
    assert_eq!(made["alias"], "caster");
    let taken = attach(&daemon, "s2", &a, "c", json!({"alias": "caster"})).await;
    assert_eq!(refused(&taken, 409, "alias_taken")["session"], "s1");
    refused(&daemon.get(&format!("{SESSIONS}/s2")).await, 404, "session_not_found");
    let by_alias = async |alias: &str| daemon.get(&format!("{SESSIONS}?alias={alias}")).await.json();
    let found = by_alias("caster").await;
    assert_eq!((names(&found), found.get("next")), (vec!["s1"], None));
    assert_eq!(by_alias("unused").await, json!({"sessions": []}));
    detach(&daemon, "s1", &a, "c", None).await;
    let deleted = daemon.delete(&format!("{SESSIONS}/s1")).await;
    assert_eq!(
        (deleted.status.as_u16(), deleted.header("tenure-session-epoch")),
        (204, made["epoch"].to_string().as_str())
    );
    assert_eq!(by_alias("caster").await, json!({"sessions": []}));
    attached(&daemon, "s2", &a, "c", json!({"alias": "caster"})).await;
}

#[tokio::test]
async fn data_is_patched_field_by_field_up_to_its_limits() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    let path = format!("{SESSIONS}/s");
    let missing = daemon.send("PATCH", &path, json!({"data": {"x": 1}})).await;
    refused(&missing, 404, "session_not_found");
    attached(&daemon, "s", &a, "c", json!({"data": {"x": 1, "y": {"z": null}}})).await;
    let patch = json!({"tenure": a, "data": {"x": null, "w": "é\n"}});
    let patched = daemon.send("PATCH", &path, patch).await;
    assert_eq!(
        (patched.status.as_u16(), &patched.json()["data"]),
        (200, &json!({"w": "é\n", "y": {"z": null}}))
    );
    assert_eq!(patched.json(), daemon.get(&path).await.json());
    let dead = daemon.send("PATCH", &path, json!({"tenure": "z@7", "data": {}})).await;
    refused(&dead, 410, "tenure_ended");

    let largest: serde_json::Map<_, _> = (0..62).map(|n| (format!("f{n}"), json!("x".repeat(4_094)))).collect();
    let full = daemon.send("PATCH", &path, json!({ "data": largest })).await;
    assert_eq!(full.status, 200, "64 fields of 4,096 bytes fit");
    let more = daemon.send("PATCH", &path, json!({"data": {"more": 1}})).await;
    assert_eq!(refused(&more, 409, "session_full")["limit"], "fields");
    let more = attach(&daemon, "s", &a, "c2", json!({"data": {"more": 1}})).await;
    assert_eq!(refused(&more, 409, "session_full")["limit"], "fields");
    let instead = daemon
        .send("PATCH", &path, json!({"data": {"f0": null, "more": 1}}))
        .await;
    assert_eq!(instead.status, 200);

    let asked: Vec<_> = (0..201)
        .map(|n| json!({"session": "t", "connection": format!("c{n}")}))
        .collect();
    let body = json!({"tenure": a, "sessions": asked});
    let many = daemon.send("POST", "/v1/groups/g/sessions-attach", body).await.json();
    let last = &many["results"][200];
    assert_eq!(
        (&last["outcome"], &last["limit"]),
        (&json!("full"), &json!("connections"))
    );
    let more = attach(&daemon, "t", &a, "more", json!({})).await;
    assert_eq!(refused(&more, 409, "session_full")["limit"], "connections");
}

#[tokio::test]
async fn orphan_is_not_resumed_and_is_reaped() {
    let (daemon, clock) = stopped().await;
    let a = daemon.join("g", "a").await;
    let made = attached(&daemon, "s1", &a, "c", json!({"grace_ms": 2000, "alias": "caster"})).await;
    for session in ["s2", "s3"] {
        attached(&daemon, session, &a, "c", json!({"grace_ms": 3000})).await;
    }
    for session in ["s1", "s2"] {
        detach(&daemon, session, &a, "c", None).await;
    }
    pass(&daemon, &clock, Duration::from_millis(2_500), &[&a]).await;
    let seen = daemon.get(&format!("{SESSIONS}/s1")).await.json();
    assert_eq!((&seen["state"], &seen["reap_in_ms"]), (&json!("orphan"), &json!(0)));
    let stats = daemon.get("/v1/groups/g/sessions-stats").await.json();
    assert_eq!(stats, json!({"active": 1, "disconnected": 1, "orphans": 1}));
    let of = async |state: &str| {
        let page = daemon.get(&format!("{SESSIONS}?state={state}")).await.json();
        names(&page).join(" ")
    };
    assert_eq!(
        (of("orphan").await, of("disconnected").await, of("active").await),
        ("s1".to_owned(), "s2".to_owned(), "s3".to_owned())
    );
    let orphans = async |query: &str| {
        daemon
            .get(&format!("/v1/groups/g/sessions-orphans{query}"))
            .await
            .json()
    };
    assert_eq!(
        orphans("").await,
        json!({"skipped": 0, "orphans": [{
            "session": "s1", "epoch": made["epoch"], "disconnected_at": seen["disconnected_at"],
            "overdue_ms": 500,
        }]})
    );
    assert_eq!(orphans("?overdue_ms=501").await["orphans"], json!([]));
    assert_eq!(orphans("?overdue_ms=500&limit=1").await["orphans"][0]["session"], "s1");

    let dry = daemon
        .send("POST", "/v1/groups/g/sweep", json!({"dry_run": true}))
        .await
        .json();
    assert_eq!((&dry["orphans"], &dry["reaped"]), (&json!(["s1"]), &json!(0)));
    let again = attach(&daemon, "s1", &a, "c", json!({"resume_only": true})).await;
    refused(&again, 404, "session_not_found");
    let reaped = daemon.get("/v1/groups/g/events?types=session_reaped").await.json();
    assert_eq!(
        (
            &reaped["events"][0]["session"],
            &reaped["events"][0]["epoch"],
            &reaped["events"][0]["alias"]
        ),
        (&json!("s1"), &made["epoch"], &json!("caster"))
    );
    pass(&daemon, &clock, Duration::from_millis(1_000), &[&a]).await;
    let swept = daemon
        .send("POST", "/v1/groups/g/sweep", json!({"reconcile": true}))
        .await
        .json();
    assert_eq!(
        (&swept["reaped"], &swept["skipped"], &swept["repaired"]),
        (&json!(1), &json!(0), &json!({}))
    );
    let page = daemon.get(SESSIONS).await.json();
    assert_eq!(names(&page), ["s3"]);
}

#[tokio::test]
async fn sessions_of_a_dead_instance_can_be_resumed() {
    let (daemon, clock) = stopped().await;
    let (a, b) = (daemon.join_for("g", "a", 2_000).await, daemon.join("g", "b").await);
    for session in ["s1", "s2"] {
        attached(&daemon, session, &a, "c", json!({})).await;
    }
    attached(&daemon, "s2", &b, "d", json!({})).await;
    pass(&daemon, &clock, Duration::from_millis(2_500), &[&b]).await;
    let seen = daemon.get(&format!("{SESSIONS}/s1")).await.json();
    assert_eq!(
        (&seen["state"], &seen["connections"], seen.get("reap_in_ms")),
        (&json!("disconnected"), &json!(0), None),
        "no ghost, and the grace has not begun"
    );
    // The burst delay passes in the store's time.
    let ended = daemon
        .send("POST", "/v1/groups/g/sweep", json!({"wait_ms": 0}))
        .await
        .json();
    assert_eq!(ended["ended"], 1);
    let active = daemon.delete(&format!("{SESSIONS}/s1")).await;
    assert_eq!(refused(&active, 409, "session_active")["connections"], 1);
    pass(&daemon, &clock, Duration::from_millis(500), &[&b]).await;
    let swept = daemon
        .send("POST", "/v1/groups/g/sweep", json!({"wait_ms": 0}))
        .await
        .json();
    assert_eq!(
        (&swept["connections_total"], &swept["evicted"][0]["connections"]),
        (&json!(2), &json!(2))
    );
    let gone = daemon
        .get("/v1/groups/g/events?types=session_disconnected")
        .await
        .json();
    assert_eq!(
        (&gone["events"][0]["session"], &gone["events"][0]["reason"]),
        (&json!("s1"), &json!("lapsed"))
    );
    assert_eq!(gone["events"].as_array().unwrap().len(), 1, "s2 lives on: {gone}");
    assert_eq!(attached(&daemon, "s1", &b, "e", json!({})).await["outcome"], "resumed");
}

#[tokio::test]
async fn a_session_with_connections_is_not_deleted() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    for connection in ["c1", "c2"] {
        attached(&daemon, "s", &a, connection, json!({})).await;
    }
    let path = format!("{SESSIONS}/s");
    let active = daemon.delete(&path).await;
    assert_eq!(refused(&active, 409, "session_active")["connections"], 2);
    for connection in ["c1", "c2"] {
        detach(&daemon, "s", &a, connection, None).await;
    }
    assert_eq!(daemon.delete(&path).await.status, 204);
    refused(&daemon.delete(&path).await, 404, "session_not_found");
    let deleted = daemon.get("/v1/groups/g/events?types=session_deleted").await.json();
    assert_eq!(deleted["events"][0]["session"], "s");
}

#[tokio::test]
async fn many_connections_are_attached_and_detached_at_once() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    attached(&daemon, "s2", &b, "d", json!({"alias": "taken"})).await;
    let body = json!({"tenure": a, "sessions": [
        {"session": "s1", "connection": "c", "data": {"x": 1}, "grace_ms": 1000},
        {"session": "s2", "connection": "c"},
        {"session": "s3", "connection": "c", "alias": "taken"},
        {"session": "s4", "connection": "c", "resume_only": true},
    ]});
    let answer = daemon.send("POST", "/v1/groups/g/sessions-attach", body).await.json();
    let results = answer["results"].as_array().unwrap();
    let outcomes: Vec<_> = results.iter().map(|r| r["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["created", "attached", "alias_taken", "gone"]);
    let now = daemon.get(&format!("{SESSIONS}/s1")).await.json();
    assert_eq!(
        results[0],
        json!({"session": "s1", "connection": "c", "outcome": "created", "now": now})
    );
    assert_eq!(
        results[2],
        json!({"session": "s3", "connection": "c", "outcome": "alias_taken", "taken_by": "s2"})
    );
    assert_eq!(
        results[3],
        json!({"session": "s4", "connection": "c", "outcome": "gone"})
    );
    assert_eq!(answer["revision"], results[1]["now"]["epoch"]);
    let none = json!({"tenure": a, "sessions": []});
    let checked = daemon.send("POST", "/v1/groups/g/sessions-attach", none.clone()).await;
    assert_eq!((checked.status.as_u16(), &checked.json()["results"]), (200, &json!([])));

    let epoch = &results[0]["now"]["epoch"];
    let body = json!({"tenure": a, "connections": [
        {"session": "s1", "connection": "c", "epoch": epoch.as_u64().unwrap() - 1},
        {"session": "s1", "connection": "c", "epoch": epoch},
        {"session": "s1", "connection": "c"},
        {"session": "s2", "connection": "c"},
        {"session": "s2", "connection": "d"},
    ]});
    let answer = daemon.send("POST", "/v1/groups/g/sessions-detach", body).await.json();
    assert_eq!(
        answer["results"],
        json!([
            {"session": "s1", "connection": "c", "outcome": "stale", "epoch": epoch},
            {"session": "s1", "connection": "c", "outcome": "detached", "reap_in_ms": 1000},
            {"session": "s1", "connection": "c", "outcome": "not_attached"},
            {"session": "s2", "connection": "c", "outcome": "detached"},
            {"session": "s2", "connection": "d", "outcome": "not_holder", "holder": "b", "tenure": b},
        ])
    );
    daemon.delete(&format!("/v1/groups/g/tenures/{a}")).await;
    let ended = daemon.send("POST", "/v1/groups/g/sessions-attach", none).await;
    assert_eq!(refused(&ended, 410, "tenure_ended")["reason"], "left");
}

#[tokio::test]
async fn sessions_are_listed_page_by_page_and_a_long_page_ends_early() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    let data = json!({"x": "x".repeat(4_000), "y": "y".repeat(4_000)});
    for part in 0..7 {
        let asked: Vec<_> = (part * 100..part * 100 + 100)
            .map(|n| json!({"session": format!("s{n:03}"), "connection": "c", "data": data}))
            .collect();
        let body = json!({"tenure": a, "sessions": asked});
        let answer = daemon.send("POST", "/v1/groups/g/sessions-attach", body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let (mut seen, mut lengths, mut after) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = daemon
            .get(&format!("{SESSIONS}?state=active&limit=1000&after={after}"))
            .await
            .json();
        let listed = names(&page);
        lengths.push(listed.len());
        seen.extend(listed.into_iter().map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    let all: Vec<_> = (0..700).map(|n| format!("s{n:03}")).collect();
    assert_eq!(seen, all);
    assert_eq!(lengths, [600, 100], "a page ends with the tranche that makes it long");
    let page = daemon.get(&format!("{SESSIONS}?limit=150")).await.json();
    assert_eq!((names(&page).len(), &page["next"]), (150, &json!("s149")));
}

#[tokio::test]
async fn a_client_attaches_more_than_a_daemon_reads_at_once() {
    let daemon = Daemon::start().await;
    let (a, group) = (daemon.join("g", "a").await, Group::new("g").unwrap());
    let settings = HttpSettings {
        request_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(20),
        ..HttpSettings::default()
    };
    let client = HttpStore::new(&daemon.base, SystemClock::shared(), Handle::current(), settings).unwrap();
    let asked: Vec<_> = (0..700)
        .map(|n| {
            let (session, connection) = (format!("s{n}").parse().unwrap(), "c".parse().unwrap());
            let mut attach = Attach::new(session, connection);
            for field in ["x", "y"] {
                attach.data.insert(field.to_owned(), json!("x".repeat(4_000)));
            }
            attach
        })
        .collect();
    let tenure = a.parse().unwrap();
    let attached = client.attach(&group, &tenure, &asked, Call::default()).await.unwrap();
    let created = |outcome: &AttachOutcome| matches!(outcome, AttachOutcome::Attached { how: How::Created, .. });
    assert!(attached.outcomes.len() == 700 && attached.outcomes.iter().all(created));
    let stats = client.session_stats(&group).await.unwrap();
    assert_eq!((stats.active, attached.before.is_none()), (700, true));
    let again = client.attach(&group, &tenure, &[], Call::default()).await.unwrap();
    assert_eq!(again.before, attached.revision, "the last part's");
}

#[tokio::test]
async fn call_after_its_not_after_changes_nothing() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    attached(&daemon, "kept", &a, "c", json!({})).await;
    attached(&daemon, "idle", &a, "c", json!({})).await;
    detach(&daemon, "idle", &a, "c", None).await;
    let before = daemon.get("/v1/groups/g/events").await.json();
    let detach = format!("sessions/kept/connections/c?tenure={a}");
    for (method, path, body) in [
        ("PUT", "sessions/s", json!({"tenure": a, "connection": "c"})),
        (
            "POST",
            "sessions-attach",
            json!({"tenure": a, "sessions": [{"session": "s", "connection": "c"}]}),
        ),
        ("DELETE", detach.as_str(), Value::Null),
        (
            "POST",
            "sessions-detach",
            json!({"tenure": a, "connections": [{"session": "kept", "connection": "c"}]}),
        ),
        ("PATCH", "sessions/kept", json!({"data": {"x": 1}})),
        ("DELETE", "sessions/idle", Value::Null),
    ] {
        let mut request = daemon.request(method, &format!("/v1/groups/g/{path}"));
        if !body.is_null() {
            request = request.json(&body);
        }
        let late = request.header("Tenure-Not-After", "2001-01-01T00:00:00Z");
        refused(&Answer::read(late.send().await.unwrap()).await, 409, "too_late");
    }
    assert_eq!(daemon.get("/v1/groups/g/events").await.json(), before);
    let kept = daemon.get(&format!("{SESSIONS}/kept")).await.json();
    assert_eq!((&kept["connections"], &kept["data"]), (&json!(1), &json!({})));
}

#[tokio::test]
async fn every_route_reports_an_outage_within_its_timeout() {
    let clock = SystemClock::shared();
    let moody = Faulty::new(clock.clone());
    let daemon = Daemon::over(moody.clone(), clock, Settings::default()).await;
    let a = daemon.join("g", "a").await;
    let detach = format!("sessions/s/connections/c?tenure={a}");
    for mood in [Mood::Hangs, Mood::Fails(ErrorKind::Unavailable)] {
        moody.be(mood);
        for (method, path, body, outcome) in [
            ("PUT", "sessions/s", json!({"tenure": a, "connection": "c"}), "unknown"),
            (
                "POST",
                "sessions-attach",
                json!({"tenure": a, "sessions": []}),
                "unknown",
            ),
            ("DELETE", detach.as_str(), Value::Null, "unknown"),
            (
                "POST",
                "sessions-detach",
                json!({"tenure": a, "connections": []}),
                "unknown",
            ),
            ("PATCH", "sessions/s", json!({"data": {}}), "unknown"),
            ("DELETE", "sessions/s", Value::Null, "unknown"),
            ("GET", "sessions", Value::Null, "unchanged"),
            ("GET", "sessions?alias=a", Value::Null, "unchanged"),
            ("GET", "sessions/s", Value::Null, "unchanged"),
            ("GET", "sessions-stats", Value::Null, "unchanged"),
            ("GET", "sessions-orphans", Value::Null, "unchanged"),
        ] {
            let mut request = daemon.request(method, &format!("/v1/groups/g/{path}"));
            if !body.is_null() {
                request = request.json(&body);
            }
            let answer = async { Answer::read(request.send().await.unwrap()).await };
            let answer = promised(&format!("{method} {path}"), Duration::from_secs(2), answer).await;
            let problem = refused(&answer, 503, "store_unavailable");
            assert!(problem["retry_after_ms"].is_u64(), "{problem}");
            if mood == Mood::Hangs {
                assert_eq!(problem["outcome"], outcome, "{method} {path}");
            }
        }
    }
}
