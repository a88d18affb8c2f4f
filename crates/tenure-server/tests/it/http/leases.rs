//! Leases and targets over HTTP: statuses, fields, outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::BeatPulse;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::Settings;

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Answer, Daemon, promised};

async fn acquire(daemon: &Daemon, lease: &str, tenure: &str) -> Answer {
    let path = format!("/v1/groups/g/leases/{lease}/acquire");
    daemon.send("POST", &path, json!({ "tenure": tenure })).await
}

/// Acquires a free lease; returns its token.
async fn granted(daemon: &Daemon, lease: &str, tenure: &str) -> u64 {
    let answer = acquire(daemon, lease, tenure).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["outcome"]),
        (200, &json!("granted")),
        "{answer:?}"
    );
    answer.json()["token"].as_u64().expect("a token")
}

async fn release(daemon: &Daemon, lease: &str, body: Value) -> Answer {
    daemon
        .send("POST", &format!("/v1/groups/g/leases/{lease}/release"), body)
        .await
}

#[tokio::test]
async fn lease_is_granted_then_kept_with_one_holder() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    assert_eq!(daemon.get("/v1/groups/g/leases/poll").await.code(), "not_found");
    let first = acquire(&daemon, "poll", &a).await;
    let answer = first.json();
    let token = answer["token"].as_u64().expect("a token");
    assert_eq!(
        (
            &answer["lease"],
            &answer["holder"],
            &answer["tenure"],
            &answer["outcome"],
            &answer["revision"]
        ),
        (&json!("poll"), &json!("a"), &json!(a), &json!("granted"), &json!(token))
    );
    let left = answer["expires_in_ms"].as_u64().expect("a time");
    assert!((1..=30_000).contains(&left) && answer["as_of"].is_string(), "{answer}");

    let again = acquire(&daemon, "poll", &a).await.json();
    assert_eq!((&again["outcome"], &again["token"]), (&json!("kept"), &json!(token)));
    let others = acquire(&daemon, "poll", &b).await;
    assert_eq!((others.status.as_u16(), others.code()), (409, "lease_held".to_owned()));
    assert_eq!(
        (&others.json()["holder"], &others.json()["tenure"]),
        (&json!("a"), &json!(a))
    );
    let wait = others.json()["retry_after_ms"].as_u64().expect("when to ask again");
    assert!((1..=30_000).contains(&wait), "{others:?}");
    assert!(others.header("retry-after").parse::<u64>().is_ok());

    let seen = daemon.get("/v1/groups/g/leases/poll").await.json();
    assert_eq!(
        (
            &seen["lease"],
            &seen["holder"],
            &seen["tenure"],
            &seen["token"],
            &seen["alive"]
        ),
        (&json!("poll"), &json!("a"), &json!(a), &json!(token), &json!(true))
    );
    assert!(seen["expires_in_ms"].as_u64() <= Some(30_000), "{seen}");
    assert_eq!(
        daemon.get("/v1/groups/g/members/a").await.json()["holdings"],
        json!({"claims": 0, "leases": 1, "connections": 0})
    );

    let gone = acquire(&daemon, "poll", "z@7").await;
    assert_eq!((gone.status.as_u16(), gone.code()), (410, "tenure_ended".to_owned()));
    assert_eq!(gone.json()["reason"], "unknown");
}

#[tokio::test]
async fn a_release_names_tenure_and_token_and_may_be_said_twice() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let token = granted(&daemon, "poll", &a).await;
    for (tenure, token, must_say) in [(&b, token, "is held by a@"), (&a, token - 1, "under another token")] {
        let refused = release(&daemon, "poll", json!({"tenure": tenure, "token": token})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (409, "not_holder".to_owned())
        );
        assert_eq!(
            (&refused.json()["holder"], &refused.json()["tenure"]),
            (&json!("a"), &json!(a))
        );
        assert!(refused.text.contains(must_say), "{refused:?}");
    }
    for _ in 0..2 {
        let done = release(&daemon, "poll", json!({"tenure": a, "token": token})).await;
        assert_eq!(
            (done.status.as_u16(), &done.json()["outcome"]),
            (200, &json!("released"))
        );
        assert!(done.json()["revision"].as_u64() > Some(token), "{done:?}");
    }
    assert!(granted(&daemon, "poll", &b).await > token);
    let gone = release(&daemon, "poll", json!({"tenure": "z@7", "token": token})).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (410, "tenure_ended".to_owned()));
}

#[tokio::test]
async fn a_lease_that_was_handed_off_is_kept_for_its_successor() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let c = daemon.join("g", "c").await;
    let token = granted(&daemon, "poll", &a).await;
    let given = release(&daemon, "poll", json!({"tenure": a, "token": token, "to": "b"})).await;
    assert_eq!(given.json()["outcome"], "reserved");
    let refused = acquire(&daemon, "poll", &c).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "lease_held".to_owned())
    );
    let problem = refused.json();
    assert_eq!((&problem["reserved_for"], problem.get("holder")), (&json!("b"), None));
    assert!(
        (1..=5_000).contains(&problem["retry_after_ms"].as_u64().unwrap()),
        "{problem}"
    );
    assert_eq!(daemon.get("/v1/groups/g/leases/poll").await.code(), "not_found");
    let next = granted(&daemon, "poll", &b).await;
    assert!(next > token);

    // To a member that does not exist, or to itself: free.
    for to in ["absent", "b"] {
        let token = acquire(&daemon, "poll", &b).await.json()["token"].clone();
        let given = release(&daemon, "poll", json!({"tenure": b, "token": token, "to": to})).await;
        assert_eq!(given.json()["outcome"], "released", "{to}");
    }
}

#[tokio::test]
async fn dead_holder_is_taken_over_without_a_sweep() {
    let clock = Arc::new(ManualClock::new(1_767_225_600_000_000, 7));
    let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let daemon = Daemon::over(store, SystemClock::shared(), Settings::default()).await;
    let (a, b) = (daemon.join_for("g", "a", 2_000).await, daemon.join("g", "b").await);
    let token = granted(&daemon, "poll", &a).await;
    for _ in 0..5 {
        clock.advance(Duration::from_millis(400));
        daemon
            .send("PUT", &format!("/v1/groups/g/tenures/{b}/beat"), json!({}))
            .await;
        daemon.store.beat_pulse(BeatPulse::default()).await.unwrap();
    }
    let seen = daemon.get("/v1/groups/g/leases/poll").await.json();
    assert_eq!(
        (&seen["alive"], &seen["expires_in_ms"], &seen["token"]),
        (&json!(false), &json!(0), &json!(token))
    );
    let taken = acquire(&daemon, "poll", &b).await.json();
    assert_eq!((&taken["outcome"], &taken["from"]), (&json!("granted"), &json!(a)));
    assert!(taken["token"].as_u64() > Some(token));
    let events = daemon.get("/v1/groups/g/events?types=lease_taken_over").await.json();
    let event = &events["events"][0];
    assert_eq!(
        (
            &event["lease"],
            &event["token"],
            &event["from"],
            &event["reason"],
            &event["tenure"]
        ),
        (&json!("poll"), &taken["token"], &json!(a), &json!("lapsed"), &json!(b))
    );

    // After a silence of the store nothing that is free is given out for a while.
    clock.advance(Duration::from_secs(20));
    let refused = acquire(&daemon, "free", &b).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "unsettled".to_owned()));
    assert_eq!(refused.json()["retry_after_ms"], 30_000);
    assert_eq!(refused.header("retry-after"), "30");
}

#[tokio::test]
async fn many_leases_are_acquired_listed_and_released_at_once() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let held = granted(&daemon, "l2", &b).await;
    let asked = json!({"tenure": a, "leases": ["l1", "l2", "l3", "l1"]});
    let answer = daemon.send("POST", "/v1/groups/g/leases-acquire", asked).await.json();
    let results = answer["results"].as_array().unwrap();
    let outcomes: Vec<_> = results.iter().map(|r| r["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["granted", "held", "granted", "kept"]);
    assert_eq!((&results[1]["holder"], &results[1]["tenure"]), (&json!("b"), &json!(b)));
    assert_eq!(
        (&results[0]["token"], &answer["revision"]),
        (&results[3]["token"], &results[2]["token"])
    );
    assert!(answer["expires_in_ms"].as_u64() <= Some(30_000) && answer["as_of"].is_string());

    let names = |page: &Value| -> Vec<String> {
        let leases = page["leases"].as_array().expect("leases").iter();
        leases
            .map(|lease| lease["lease"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = daemon.get("/v1/groups/g/leases?limit=2&after=").await.json();
    assert_eq!(names(&page), ["l1", "l2"]);
    let next = page["next"].as_str().expect("there is more");
    let rest = daemon.get(&format!("/v1/groups/g/leases?after={next}")).await.json();
    assert_eq!(
        (names(&rest), rest.get("next"), rest.get("revision")),
        (vec!["l3".to_owned()], None, None)
    );
    assert_eq!(
        names(&daemon.get("/v1/groups/g/leases?holder=a").await.json()),
        ["l1", "l3"]
    );
    let exact = daemon.get(&format!("/v1/groups/g/leases?tenure={a}")).await.json();
    assert_eq!(
        (names(&exact), &exact["revision"]),
        (vec!["l1".to_owned(), "l3".to_owned()], &answer["revision"])
    );

    let given = json!({"tenure": a, "to": "b", "leases": [
        {"lease": "l1", "token": results[0]["token"]}, {"lease": "l2", "token": held}, {"lease": "free", "token": 5},
    ]});
    let given = daemon.send("POST", "/v1/groups/g/leases-release", given).await.json();
    assert_eq!(
        given["results"],
        json!([
            {"lease": "l1", "outcome": "reserved"},
            {"lease": "l2", "outcome": "not_holder", "holder": "b", "tenure": b},
            {"lease": "free", "outcome": "released"},
        ])
    );
    let nothing = json!({"tenure": a, "leases": []});
    let checked = daemon
        .send("POST", "/v1/groups/g/leases-acquire", nothing.clone())
        .await;
    assert_eq!((checked.status.as_u16(), &checked.json()["results"]), (200, &json!([])));
    daemon.delete(&format!("/v1/groups/g/tenures/{a}")).await;
    let ended = daemon.send("POST", "/v1/groups/g/leases-acquire", nothing).await;
    assert_eq!(
        (ended.status.as_u16(), ended.json()["reason"].clone()),
        (410, json!("left"))
    );
}

#[tokio::test]
async fn beat_exchanges_the_revision() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    let beat = |revision: u64| {
        let (daemon, a) = (&daemon, &a);
        async move {
            let one = format!("/v1/groups/g/tenures/{a}/beat");
            let alone = daemon.send("PUT", &one, json!({ "revision": revision })).await.json();
            let beats = json!({"beats": [{"tenure": a, "revision": revision}]});
            let batch = daemon.send("POST", "/v1/groups/g/beats", beats).await.json();
            assert_eq!(alone.get("revision"), batch["results"][0].get("revision"));
            alone["revision"].as_u64()
        }
    };
    assert_eq!(beat(0).await, None, "nothing was held yet");
    let token = granted(&daemon, "poll", &a).await;
    assert_eq!(beat(0).await, Some(token));
    assert_eq!(beat(token).await, Some(token));
    let claims = "/v1/groups/g/registries/r/claims";
    let one = daemon
        .send("PUT", &format!("{claims}/k1"), json!({ "tenure": a }))
        .await
        .json();
    let many = daemon
        .send("POST", claims, json!({"tenure": a, "keys": ["k2"]}))
        .await
        .json();
    assert!(one["revision"].as_u64() > Some(token) && many["revision"].as_u64() > one["revision"].as_u64());
    assert_eq!(beat(token).await, many["revision"].as_u64());
    let nothing = daemon
        .send("POST", claims, json!({"tenure": a, "keys": []}))
        .await
        .json();
    assert_eq!(nothing, json!({"results": []}));
    assert_eq!(daemon.get("/v1/groups/g").await.json()["settled"], true);

    // A number that the store has not heard of, but could have given out: it lost the end of its data.
    let now = daemon.store.now().await.unwrap().micros();
    assert_eq!(beat(now).await, many["revision"].as_u64());
    assert_eq!(
        daemon.get("/v1/groups/g").await.json()["unsettled"]["cause"],
        "tail_loss"
    );
}

#[tokio::test]
async fn target_shows_preferred_node_and_holder() {
    let daemon = Daemon::start().await;
    let path = "/v1/groups/g/targets/endpoint-1";
    assert_eq!(daemon.get(path).await.code(), "not_found");
    let new = Answer::read(daemon.request("PUT", path).send().await.unwrap()).await;
    let plain = json!({"target": "endpoint-1", "paused": false, "weight": 1});
    assert_eq!((new.status.as_u16(), new.json()), (201, plain.clone()));
    let again = daemon.send("PUT", path, json!({"weight": 7})).await;
    assert_eq!((again.status.as_u16(), &again.json()["weight"]), (200, &json!(7)));
    let again = daemon.send("PUT", path, json!({"paused": true})).await;
    assert_eq!(
        again.json(),
        json!({"target": "endpoint-1", "paused": true, "weight": 1}),
        "replaced, not patched"
    );
    daemon.send("PUT", path, json!({})).await;
    assert_eq!(
        daemon.get(path).await.json(),
        plain,
        "without members there is nowhere to be"
    );

    let mut tenures = std::collections::BTreeMap::new();
    for node in ["node-1", "node-2", "node-3"] {
        tenures.insert(node.to_owned(), daemon.join("g", node).await);
    }
    let first = daemon.get(path).await.json()["preferred"]
        .as_str()
        .expect("a node")
        .to_owned();
    let placement = tenure_core::placement::Placement::new(
        tenures
            .keys()
            .map(|name| tenure_core::placement::Node::new(name.parse().unwrap())),
    );
    let rank: Vec<_> = placement
        .rank("endpoint-1")
        .into_iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(first, rank[0]);
    // One that drains says so by claiming its own name.
    let drains = format!("/v1/groups/g/registries/fleet.draining/claims/{first}");
    daemon.send("PUT", &drains, json!({"tenure": tenures[&first]})).await;
    assert_eq!(daemon.get(path).await.json()["preferred"], json!(rank[1]));
    daemon
        .delete(&format!("/v1/groups/g/tenures/{}", tenures[&rank[1]]))
        .await;
    assert_eq!(daemon.get(path).await.json()["preferred"], json!(rank[2]));

    let token = granted(&daemon, "endpoint-1", &tenures[&first]).await;
    let seen = daemon.get(path).await.json();
    assert_eq!(
        (&seen["holder"], &seen["tenure"], &seen["token"], &seen["alive"]),
        (&json!(first), &json!(tenures[&first]), &json!(token), &json!(true))
    );
    assert_eq!(daemon.get(&format!("{path}?plain=true")).await.json(), plain);

    daemon.send("PUT", "/v1/groups/g/targets/endpoint-2", json!({})).await;
    let page = daemon.get("/v1/groups/g/targets?limit=1").await.json();
    assert_eq!((&page["targets"][0], page["next"].is_string()), (&seen, true));
    let all = daemon.get("/v1/groups/g/targets?plain=true").await.json();
    assert_eq!(all["targets"][0], plain);
    assert_eq!(
        (all["targets"][1]["target"].as_str(), all.get("next")),
        (Some("endpoint-2"), None)
    );

    for was_there in ["true", "false"] {
        let removed = daemon.delete(path).await;
        assert_eq!(
            (removed.status.as_u16(), removed.header("tenure-removed")),
            (204, was_there)
        );
    }
    let events = daemon.get("/v1/groups/g/events?types=target_changed").await.json();
    let reasons: Vec<_> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["added", "changed", "changed", "changed", "added", "removed"]);
    assert_eq!(events["events"][0]["lease"], "endpoint-1");
}

#[tokio::test]
async fn call_after_its_not_after_changes_nothing() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    let token = granted(&daemon, "kept", &a).await;
    let before = daemon.get("/v1/groups/g/events").await.json();
    for (method, path, body) in [
        ("POST", "leases/l/acquire", json!({ "tenure": a })),
        ("POST", "leases-acquire", json!({"tenure": a, "leases": ["l"]})),
        ("POST", "leases/kept/release", json!({"tenure": a, "token": token})),
        (
            "POST",
            "leases-release",
            json!({"tenure": a, "leases": [{"lease": "kept", "token": token}]}),
        ),
        ("PUT", "targets/t", json!({})),
        ("DELETE", "targets/t", json!({})),
    ] {
        let request = daemon.request(method, &format!("/v1/groups/g/{path}"));
        let late = request.header("Tenure-Not-After", "2001-01-01T00:00:00Z").json(&body);
        let late = Answer::read(late.send().await.unwrap()).await;
        assert_eq!(
            (late.status.as_u16(), late.code()),
            (409, "too_late".to_owned()),
            "{method} {path}"
        );
    }
    assert_eq!(daemon.get("/v1/groups/g/events").await.json(), before);
    assert_eq!(
        daemon.get("/v1/groups/g/leases/kept").await.json()["token"],
        json!(token)
    );
}

#[tokio::test]
async fn every_route_reports_an_outage_within_its_timeout() {
    let clock = SystemClock::shared();
    let moody = Faulty::new(clock.clone());
    let daemon = Daemon::over(moody.clone(), clock, Settings::default()).await;
    let a = daemon.join("g", "a").await;
    daemon.send("PUT", "/v1/groups/g/targets/t", json!({})).await;
    for mood in [Mood::Hangs, Mood::Fails(ErrorKind::Unavailable)] {
        moody.be(mood);
        for (method, path, body, outcome) in [
            ("POST", "leases/l/acquire", json!({ "tenure": a }), "unknown"),
            (
                "POST",
                "leases-acquire",
                json!({"tenure": a, "leases": ["l"]}),
                "unknown",
            ),
            ("POST", "leases/l/release", json!({"tenure": a, "token": 5}), "unknown"),
            ("POST", "leases-release", json!({"tenure": a, "leases": []}), "unknown"),
            ("PUT", "targets/t", json!({}), "unknown"),
            ("DELETE", "targets/t", Value::Null, "unknown"),
            ("GET", "leases", Value::Null, "unchanged"),
            ("GET", "leases/l", Value::Null, "unchanged"),
            ("GET", "targets", Value::Null, "unchanged"),
            ("GET", "targets/t", Value::Null, "unchanged"),
        ] {
            let mut request = daemon.request(method, &format!("/v1/groups/g/{path}"));
            if !body.is_null() {
                request = request.json(&body);
            }
            let answer = async { Answer::read(request.send().await.unwrap()).await };
            let answer = promised(&format!("{method} {path}"), Duration::from_secs(2), answer).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (503, "store_unavailable".to_owned()),
                "{method} {path}"
            );
            let problem = answer.json();
            assert!(problem["retry_after_ms"].is_u64(), "{problem}");
            if mood == Mood::Hangs {
                assert_eq!(problem["outcome"], outcome, "{method} {path}");
            }
        }
    }
}
