//! The pinned HTTP surface, route by route: statuses, fields, outcomes.

use serde_json::{Value, json};

use crate::common::{self, Daemon};

#[tokio::test]
async fn a_join_is_201_and_joining_again_supersedes() {
    let daemon = Daemon::start().await;
    let labels = json!({"zone": "a"});
    let joined = daemon
        .send(
            "POST",
            "/v1/groups/g/members",
            json!({"member": "m", "ttl_ms": 5000, "labels": labels}),
        )
        .await;
    assert_eq!(joined.status, 201);
    let body = joined.json();
    assert_eq!(body["tenure"], format!("m@{}", body["term"]));
    assert_eq!(
        (&body["member"], &body["ttl_ms"], &body["expires_in_ms"]),
        (&json!("m"), &json!(5000), &json!(5000))
    );
    assert_eq!(body.get("superseded"), None);
    assert_eq!(joined.header("location"), "/v1/groups/g/members/m");
    assert!(joined.header("tenure-store-time").ends_with('Z'));

    let again = daemon
        .send("POST", "/v1/groups/g/members", json!({"member": "m"}))
        .await
        .json();
    assert_eq!(again["superseded"], body["tenure"]);
    assert_eq!(again["ttl_ms"], 30_000, "the default");
    assert!(again["term"].as_u64() > body["term"].as_u64());
}

#[tokio::test]
async fn members_are_looked_up_and_listed_page_by_page() {
    let daemon = Daemon::start().await;
    for member in ["a", "b", "c"] {
        daemon.join("g", member).await;
    }
    let one = daemon.get("/v1/groups/g/members/b").await.json();
    assert_eq!(
        (&one["member"], &one["alive"], &one["holdings"]["claims"]),
        (&json!("b"), &json!(true), &json!(0))
    );
    assert!(one["joined_at"].is_string() && one["labels"].is_object());
    let missing = daemon.get("/v1/groups/g/members/absent").await;
    assert_eq!((missing.status.as_u16(), missing.code()), (404, "not_found".to_owned()));

    let page = daemon.get("/v1/groups/g/members?limit=2&after=").await.json();
    assert_eq!(page["members"].as_array().map(Vec::len), Some(2));
    let next = page["next"].as_str().expect("there is more");
    let rest = daemon
        .get(&format!("/v1/groups/g/members?limit=2&after={next}"))
        .await
        .json();
    assert_eq!(rest["members"][0]["member"], "c");
    assert_eq!(rest.get("next"), None);
}

#[tokio::test]
async fn a_beat_renews_and_an_ended_tenure_is_gone_with_its_reason() {
    let daemon = Daemon::start().await;
    let tenure = daemon.join("g", "m").await;
    let path = format!("/v1/groups/g/tenures/{tenure}/beat");
    let beat = common::Answer::read(daemon.request("PUT", &path).send().await.unwrap()).await;
    assert_eq!(
        (beat.status.as_u16(), beat.json()),
        (200, json!({"expires_in_ms": 30_000}))
    );
    let longer = daemon.send("PUT", &path, json!({"ttl_ms": 60_000})).await;
    assert_eq!(longer.json(), json!({"expires_in_ms": 60_000}));

    let left = daemon.delete(&format!("/v1/groups/g/tenures/{tenure}")).await;
    assert_eq!(
        (
            left.status.as_u16(),
            left.header("tenure-end-reason"),
            left.text.as_str()
        ),
        (204, "left", "")
    );
    let again = daemon
        .delete(&format!("/v1/groups/g/tenures/{tenure}?expel=true"))
        .await;
    assert_eq!(
        (again.status.as_u16(), again.header("tenure-end-reason")),
        (204, "left"),
        "the first reason stays"
    );
    let late = daemon.send("PUT", &path, json!({})).await;
    assert_eq!((late.status.as_u16(), late.code()), (410, "tenure_ended".to_owned()));
    assert_eq!(late.json()["reason"], "left");
    let stranger = daemon.send("PUT", "/v1/groups/g/tenures/x@5/beat", json!({})).await;
    assert_eq!(
        (stranger.status.as_u16(), stranger.json()["reason"].clone()),
        (410, json!("unknown"))
    );
}

#[tokio::test]
async fn expelled_member_gets_the_reason() {
    let daemon = Daemon::start().await;
    let tenure = daemon.join("g", "m").await;
    assert_eq!(
        daemon
            .delete(&format!("/v1/groups/g/tenures/{tenure}?expel=true"))
            .await
            .status,
        204
    );
    let late = daemon
        .send("PUT", &format!("/v1/groups/g/tenures/{tenure}/beat"), json!({}))
        .await;
    assert_eq!(late.json()["reason"], "expelled");
}

#[tokio::test]
async fn a_batch_answers_each_beat_by_itself() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    daemon.delete(&format!("/v1/groups/g/tenures/{b}")).await;
    let beats = json!({"beats": [{"tenure": a}, {"tenure": b}, {"tenure": "x@5"}, {"tenure": a, "ttl_ms": 9000}]});
    let answer = daemon.send("POST", "/v1/groups/g/beats", beats).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json()["results"],
        json!([
            {"tenure": a, "status": "renewed", "expires_in_ms": 30_000},
            {"tenure": b, "status": "ended", "reason": "left"},
            {"tenure": "x@5", "status": "unknown"},
            {"tenure": a, "status": "renewed", "expires_in_ms": 9_000},
        ])
    );
}

#[tokio::test]
async fn batch_takes_ten_thousand_beats_at_most() {
    let daemon = Daemon::start().await;
    let tenure = daemon.join("g", &"m".repeat(200)).await;
    let beats = |count: usize| json!({"beats": vec![json!({"tenure": tenure, "ttl_ms": 30_000}); count]});
    let all = daemon.send("POST", "/v1/groups/g/beats", beats(10_000)).await;
    assert_eq!(all.json()["results"].as_array().map(Vec::len), Some(10_000));
    let more = daemon.send("POST", "/v1/groups/g/beats", beats(10_001)).await;
    assert_eq!((more.status.as_u16(), more.code()), (422, "invalid".to_owned()));
    assert!(
        more.text.contains("10001") && more.text.contains("10000"),
        "{}",
        more.text
    );
}

#[tokio::test]
async fn claim_is_new_kept_moved_and_released_by_its_owner() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let path = "/v1/groups/g/registries/devices/claims/d1";
    for (tenure, outcome) in [(&a, "new"), (&a, "kept"), (&b, "moved")] {
        let claim = daemon.send("PUT", path, json!({ "tenure": tenure })).await;
        assert_eq!(
            (claim.status.as_u16(), claim.json()["outcome"].clone()),
            (200, json!(outcome))
        );
        assert_eq!(
            (&claim.json()["key"], &claim.json()["tenure"]),
            (&json!("d1"), &json!(tenure))
        );
    }
    let held = daemon.send("PUT", path, json!({"tenure": a, "if_absent": true})).await;
    assert_eq!((held.status.as_u16(), held.code()), (409, "claim_held".to_owned()));
    assert_eq!(
        (&held.json()["owner"], &held.json()["tenure"]),
        (&json!("b"), &json!(b))
    );
    assert_eq!(
        daemon.get(path).await.json(),
        json!({"key": "d1", "owner": "b", "tenure": b, "alive": true})
    );

    let others = daemon.delete(&format!("{path}?tenure={a}")).await;
    assert_eq!((others.status.as_u16(), others.code()), (409, "not_owner".to_owned()));
    assert_eq!(
        (&others.json()["owner"], &others.json()["tenure"]),
        (&json!("b"), &json!(b))
    );
    assert_eq!(daemon.delete(&format!("{path}?tenure={b}")).await.status, 204);
    assert_eq!(
        daemon.delete(&format!("{path}?tenure={b}")).await.status,
        204,
        "idempotent"
    );
    assert_eq!(daemon.get(path).await.code(), "not_found");
    let gone = daemon.send("PUT", path, json!({"tenure": "z@7"})).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (410, "tenure_ended".to_owned()));
}

#[tokio::test]
async fn many_keys_are_claimed_at_once_and_listed_by_owner() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join("g", "a").await, daemon.join("g", "b").await);
    let path = "/v1/groups/g/registries/devices/claims";
    daemon.send("POST", path, json!({"tenure": b, "keys": ["k2"]})).await;
    let claimed = daemon
        .send(
            "POST",
            path,
            json!({"tenure": a, "keys": ["k1", "k2", "k3"], "if_absent": true}),
        )
        .await;
    assert_eq!(
        claimed.json()["results"],
        json!([
            {"key": "k1", "outcome": "new"},
            {"key": "k2", "outcome": "held", "owner": "b", "tenure": b},
            {"key": "k3", "outcome": "new"},
        ])
    );
    let keys = |body: Value| -> Vec<String> {
        body["claims"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let of_a = daemon.get(&format!("{path}?owner=a&limit=1&after=")).await.json();
    let next = of_a["next"].as_str().expect("more").to_owned();
    let mut all = keys(of_a);
    all.extend(keys(daemon.get(&format!("{path}?owner=a&after={next}")).await.json()));
    assert_eq!(all, ["k1", "k3"]);
    assert_eq!(keys(daemon.get(path).await.json()).len(), 3);
}

#[tokio::test]
async fn sweep_waits_for_the_burst_and_reports_removals() {
    let daemon = Daemon::start().await;
    let tenure = daemon.join("g", "a").await;
    daemon
        .send(
            "POST",
            "/v1/groups/g/registries/devices/claims",
            json!({"tenure": tenure, "keys": ["k1", "k2"]}),
        )
        .await;
    daemon.delete(&format!("/v1/groups/g/tenures/{tenure}")).await;

    let dry = daemon
        .send("POST", "/v1/groups/g/sweep", json!({"dry_run": true}))
        .await
        .json();
    assert_eq!(
        (&dry["evicted_total"], &dry["doomed"][0]["holdings"]["claims"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(dry["doomed"][0]["reason"], "left");
    assert_eq!(
        daemon.get("/v1/groups/g/registries/devices/claims/k1").await.json()["alive"],
        false,
        "dry means dry"
    );

    // Without a body: the defaults, of which one is to wait a moment.
    let swept = common::Answer::read(daemon.request("POST", "/v1/groups/g/sweep").send().await.unwrap())
        .await
        .json();
    assert_eq!(
        swept["evicted"],
        json!([{"tenure": tenure, "claims": {"devices": 2}, "leases": 0, "connections": 0}])
    );
    assert_eq!((&swept["evicted_total"], &swept["dry_run"]), (&json!(2), &json!(false)));
    assert_eq!(
        daemon.get("/v1/groups/g/registries/devices/claims/k1").await.code(),
        "not_found"
    );
    let events = daemon.get("/v1/groups/g/events?types=evicted").await.json();
    assert!(
        events["events"][0]["pass"]
            .as_str()
            .unwrap()
            .starts_with(swept["pass"].as_str().unwrap()),
        "{events}"
    );
}

#[tokio::test]
async fn groups_are_listed_without_our_own_and_tell_their_state() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.get("/readyz").await.status, 200);
    for group in ["g3", "g1", "g2"] {
        daemon.join(group, "m").await;
    }
    let page = daemon.get("/v1/groups?limit=2").await.json();
    assert_eq!(page, json!({"groups": ["g1", "g2"], "next": "g2"}));
    assert_eq!(
        daemon.get("/v1/groups?limit=2&after=g2").await.json(),
        json!({"groups": ["g3"]})
    );
    let state = daemon.get("/v1/groups/g1").await.json();
    assert_eq!(
        (&state["group"], &state["members"], &state["settled"]),
        (&json!("g1"), &json!(1), &json!(true))
    );
}

#[tokio::test]
async fn a_call_after_its_not_after_changes_nothing() {
    let daemon = Daemon::start().await;
    let late = daemon
        .request("POST", "/v1/groups/g/members")
        .header("Tenure-Not-After", "2001-01-01T00:00:00Z")
        .json(&json!({"member": "m"}));
    let late = common::Answer::read(late.send().await.unwrap()).await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "too_late".to_owned()));
    assert_eq!(daemon.get("/v1/groups/g/members/m").await.code(), "not_found");

    // One made from the store's own time, as it was told, is in time.
    let now = daemon.get("/v1/now").await;
    let at: tenure_core::StoreTime = now.json()["now"].as_str().unwrap().parse().unwrap();
    let at = (at + std::time::Duration::from_secs(20)).to_string();
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .header("Tenure-Not-After", at);
    assert_eq!(
        request.json(&json!({"member": "m"})).send().await.unwrap().status(),
        201
    );
}

#[tokio::test]
async fn the_daemon_tells_about_itself() {
    let daemon = Daemon::start().await;
    daemon.join("g", "m").await;
    // A status may be a second old; a group that was just made may not be in it yet.
    tenure_testkit::wait::until_async("the group shows up", common::PATIENCE, || async {
        daemon.get("/v1/status").await.json()["groups"][0]["group"] == "g"
    })
    .await;
    let status = daemon.get("/v1/status").await.json();
    assert_eq!(
        (&status["store"]["place"], &status["store"]["up"]),
        (&json!("memory:"), &json!(true))
    );
    assert_eq!(
        (&status["groups_total"], &status["version"]),
        (&json!(1), &json!(env!("CARGO_PKG_VERSION")))
    );
    let loops: Vec<_> = status["loops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["name"].as_str().unwrap())
        .collect();
    assert_eq!(loops, ["metrics", "pulse", "refusals", "watch"]);
    assert!(daemon.get("/v1/doctor").await.json()["findings"].is_array());
    let page = daemon.get("/").await;
    assert!(page.text.contains("<h1>Tenure</h1>") && page.header("content-type").starts_with("text/html"));
}
