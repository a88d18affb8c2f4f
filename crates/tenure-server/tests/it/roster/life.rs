//! A working day of a roster: every route, and every field that other languages rely on.

use serde_json::{Value, json};

use crate::roster::server::{R, RosterServer, of};

/// What is pinned of a provider.
const PINNED: &[&str] = &[
    "provider",
    "display_name",
    "active",
    "online",
    "alive",
    "occupancy",
    "capacity",
    "last_heartbeat_at",
];

#[tokio::test]
async fn provider_lifecycle() {
    let server = RosterServer::open().await;
    let spec = json!({"display_name": "Ana", "capacity": 2});
    let put = server.send("PUT", "/providers/ana", spec).await.json();
    let fresh = json!({
        "provider": "ana", "display_name": "Ana", "active": true, "online": false, "alive": false, "occupancy": 0,
        "capacity": 2, "last_heartbeat_at": null,
    });
    assert_eq!(of(&put, PINNED), fresh);
    assert_eq!((&put["changed"], &put["reachable"]), (&json!(true), &json!(false)));
    assert!(put["mirrored"].is_boolean(), "{put}");
    let again = server.send("PUT", "/providers/ana", json!({})).await.json();
    assert_eq!((&again["changed"], &again["version"]), (&json!(false), &put["version"]));

    let online = server.post("/providers/ana/online").await.json();
    assert_eq!(
        (&online["online"], &online["alive"]),
        (&json!(true), &json!(true)),
        "{online}"
    );
    assert!(
        online["last_online_at"].is_string() && online["tenure"].is_string(),
        "{online}"
    );
    let heartbeat = server.post("/providers/ana/heartbeat").await;
    assert_eq!(heartbeat.status, 200, "{heartbeat:?}");
    let heartbeat = heartbeat.json();
    assert_eq!(heartbeat["provider"], "ana");
    assert!(
        matches!(heartbeat["recorded"].as_str(), Some("mirror" | "ledger")),
        "{heartbeat}"
    );
    let seen = server.get("/providers/ana").await.json();
    assert_eq!(
        (&seen["reachable"], &seen["online"]),
        (&json!(true), &json!(true)),
        "{seen}"
    );
    assert!(matches!(seen["source"].as_str(), Some("mirror" | "ledger")), "{seen}");

    let offline = server.post("/providers/ana/offline").await.json();
    assert_eq!((&offline["online"], &offline["alive"]), (&json!(false), &json!(false)));
    assert!(offline["last_offline_at"].is_string(), "{offline}");
    let late = server.post("/providers/ana/heartbeat").await;
    assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "provider_offline"));
    let removed = server.daemon.delete(&format!("{R}/providers/ana")).await;
    assert_eq!(removed.status, 204, "{removed:?}");
    assert!(matches!(removed.header("tenure-mirrored"), "true" | "false"));
    for answer in [
        server.daemon.delete(&format!("{R}/providers/ana")).await,
        server.get("/providers/ana").await,
        server.post("/providers/ana/online").await,
        server.post("/providers/ana/heartbeat").await,
        server.post("/providers/ana/activate").await,
    ] {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "not_found"),
            "{answer:?}"
        );
        assert!(
            answer.text.contains("the roster support has no provider ana"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_deactivated_provider_is_refused_whatever_it_does() {
    let server = RosterServer::open().await;
    server.seat("ana", 1).await;
    let row = server.post("/providers/ana/deactivate").await.json();
    assert_eq!(
        of(&row, &["active", "online", "alive"]),
        json!({"active": false, "online": false, "alive": false})
    );
    assert!(row["revoked_before"].is_string(), "{row}");
    for act in ["online", "heartbeat"] {
        let refused = server.post(&format!("/providers/ana/{act}")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (403, "provider_deactivated"),
            "{act}"
        );
    }
    assert_eq!(server.get("/stats").await.json()["deactivated"], 1);
    let back = server.post("/providers/ana/activate").await.json();
    assert_eq!(
        of(&back, &["active", "online"]),
        json!({"active": true, "online": false})
    );
    let offline = server.post("/providers/ana/heartbeat").await;
    assert_eq!(offline.code(), "provider_offline", "activation does not take it online");
    assert_eq!(server.post("/providers/ana/online").await.status, 200);

    let log = server.get("/log?provider=ana").await.json();
    let changes: Vec<_> = log["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["change"])
        .collect();
    assert_eq!(
        changes,
        ["online", "deactivated", "offline", "activated", "online"]
            .iter()
            .collect::<Vec<_>>(),
        "{log}"
    );
}

#[tokio::test]
async fn reserve_picks_least_occupied_until_full() {
    let server = RosterServer::open().await;
    for (provider, capacity) in [("ana", 1), ("ben", 2)] {
        server.seat(provider, capacity).await;
    }
    let available = server.get("/available").await.json();
    let all = json!([
        {"provider": "ana", "occupancy": 0, "capacity": 1},
        {"provider": "ben", "occupancy": 0, "capacity": 2},
    ]);
    assert_eq!(available["providers"], all);
    assert!(
        matches!(available["source"].as_str(), Some("mirror" | "ledger")),
        "{available}"
    );
    assert_eq!(
        server.get("/available?limit=1").await.json()["providers"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let availability = server.get("/availability").await.json();
    assert_eq!(
        of(&availability, &["available", "count"]),
        json!({"available": true, "count": 2})
    );
    assert!(
        availability["as_of"].is_string() && availability["source"].is_string(),
        "{availability}"
    );

    let first = server.send("POST", "/reserve", json!({"engagement": "e1"})).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.header("location"), "/v1/rosters/support/engagements/e1");
    let first = first.json();
    assert_eq!(
        of(&first, &["engagement", "provider", "status"]),
        json!({"engagement": "e1", "provider": "ana", "status": "pending"})
    );
    let again = server.send("POST", "/reserve", json!({"engagement": "e1"})).await;
    assert_eq!(
        (again.status.as_u16(), again.json()["provider"].clone()),
        (201, json!("ana"))
    );
    for _ in 0..2 {
        let named = server.post("/reserve").await;
        assert_eq!(
            (named.status.as_u16(), named.json()["provider"].clone()),
            (201, json!("ben")),
            "{named:?}"
        );
    }
    let none = server.post("/reserve").await;
    assert_eq!((none.status.as_u16(), none.code().as_str()), (409, "none_available"));
    let stats = server.get("/stats").await.json();
    assert_eq!(
        of(&stats, &["online", "available", "busy", "offline", "deactivated"]),
        json!({"online": 2, "available": 0, "busy": 2, "offline": 0, "deactivated": 0})
    );
    let busy = server.daemon.delete(&format!("{R}/providers/ana")).await;
    assert_eq!((busy.status.as_u16(), busy.code().as_str()), (409, "provider_busy"));
    assert_eq!(busy.json()["provider"]["provider"], "ana");
}

#[tokio::test]
async fn an_engagement_is_a_fact_that_begins_moves_and_ends() {
    let server = RosterServer::open().await;
    for provider in ["ana", "ben"] {
        server.put(provider, 1).await;
    }
    let occupancy =
        async |provider: &str| server.get(&format!("/providers/{provider}")).await.json()["occupancy"].clone();
    let new = json!({"id": "e1", "provider": "ana", "status": "active", "expires_in_ms": 60_000});
    let created = server.send("POST", "/engagements", new.clone()).await;
    assert_eq!(created.status, 201, "{created:?}");
    let created = created.json();
    assert_eq!(
        of(&created, &["engagement", "provider", "status", "changed"]),
        json!({"engagement": "e1", "provider": "ana", "status": "active", "changed": true})
    );
    assert!(
        created["expires_at"].is_string() && created["created_at"].is_string(),
        "{created}"
    );
    let again = server.send("POST", "/engagements", new).await;
    assert_eq!((again.status.as_u16(), &again.json()["changed"]), (201, &json!(false)));
    let second = server
        .send("POST", "/engagements", json!({"provider": "ana"}))
        .await
        .json();
    assert_eq!(second["status"], "pending", "a fact, also above the capacity");
    assert_eq!(occupancy("ana").await, 2);
    let another = server
        .send("POST", "/engagements", json!({"id": "e1", "provider": "ben"}))
        .await;
    assert_eq!(
        (another.status.as_u16(), another.code().as_str()),
        (409, "engagement_conflict")
    );
    assert_eq!(another.json()["engagement"]["provider"], "ana");

    let moved = server
        .send(
            "PATCH",
            "/engagements/e1",
            json!({"provider": "ben", "expires_in_ms": null}),
        )
        .await
        .json();
    assert_eq!(
        of(&moved, &["provider", "status"]),
        json!({"provider": "ben", "status": "active"})
    );
    assert!(moved.get("expires_at").is_none(), "{moved}");
    assert_eq!((occupancy("ana").await, occupancy("ben").await), (json!(1), json!(1)));
    let ended = server
        .send("PATCH", "/engagements/e1", json!({"status": "ended"}))
        .await
        .json();
    assert_eq!(ended["status"], "ended");
    let over = server
        .send("PATCH", "/engagements/e1", json!({"status": "active"}))
        .await;
    assert_eq!(
        (over.status.as_u16(), over.code().as_str()),
        (409, "engagement_conflict")
    );
    assert_eq!(occupancy("ben").await, 0);
    let seen = server.get("/engagements/e1").await.json();
    assert_eq!(
        of(&seen, &["engagement", "status", "version"]),
        of(&ended, &["engagement", "status", "version"])
    );
    for answer in [
        server.get("/engagements/e9").await,
        server
            .send("PATCH", "/engagements/e9", json!({"status": "ended"}))
            .await,
        server.send("POST", "/engagements", json!({"provider": "absent"})).await,
    ] {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "not_found"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn providers_are_listed_by_state_and_page_by_page() {
    let server = RosterServer::open().await;
    for provider in ["a", "b", "c", "d", "e"] {
        server.put(provider, 1).await;
    }
    for provider in ["a", "b"] {
        server.post(&format!("/providers/{provider}/online")).await;
    }
    server.send("POST", "/engagements", json!({"provider": "b"})).await;
    server.post("/providers/e/deactivate").await;
    let names = async |query: &str| {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let page = server
                .get(&format!("/providers?limit=2&{query}&after={after}"))
                .await
                .json();
            let providers = page["providers"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
            assert!(providers.len() <= 2);
            names.extend(providers.iter().map(|one| one["provider"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        names.sort();
        names.join(" ")
    };
    assert_eq!(names("state=").await, "a b c d e");
    for (state, expected) in [
        ("online", "a b"),
        ("available", "a"),
        ("busy", "b"),
        ("offline", "c d"),
        ("deactivated", "e"),
    ] {
        assert_eq!(names(&format!("state={state}")).await, expected, "{state}");
    }
}

#[tokio::test]
async fn settings_change_while_it_runs() {
    let server = RosterServer::open().await;
    server.put("zoe", 1).await;
    let defaults = server.get("").await.json();
    assert_eq!(
        defaults,
        json!({"default_capacity": 1, "stale_after_ms": 60_000, "require_heartbeat": true, "snapshot_ms": 10_000, "version": 0})
    );
    let changed = server
        .send("PATCH", "", json!({"default_capacity": 5, "stale_after_ms": 90_000}))
        .await
        .json();
    assert_eq!(
        of(
            &changed,
            &["default_capacity", "stale_after_ms", "require_heartbeat", "changed"]
        ),
        json!({"default_capacity": 5, "stale_after_ms": 90_000, "require_heartbeat": true, "changed": true})
    );
    let new: Value = server.send("PUT", "/providers/ana", json!({})).await.json();
    assert_eq!(new["capacity"], 5);
    tenure_testkit::wait::until_async("the settings are obeyed", crate::common::PATIENCE, || async {
        server.get("").await.json()["default_capacity"] == 5
    })
    .await;
}

#[tokio::test]
async fn null_gives_a_provider_the_default_capacity_again() {
    let server = RosterServer::open().await;
    for (provider, capacity) in [("ana", json!({})), ("ben", json!({"capacity": 7}))] {
        server.send("PUT", &format!("/providers/{provider}"), capacity).await;
    }
    let patched = server.send("PATCH", "", json!({"default_capacity": 3})).await.json();
    assert_eq!(
        of(&patched, &["changed", "mirrored"]),
        json!({"changed": true, "mirrored": true})
    );
    let capacity =
        async |provider: &str| server.get(&format!("/providers/{provider}")).await.json()["capacity"].clone();
    assert_eq!((capacity("ana").await, capacity("ben").await), (json!(3), json!(7)));
    let reset = server
        .send("PUT", "/providers/ben", json!({"capacity": null}))
        .await
        .json();
    assert_eq!(
        of(&reset, &["capacity", "changed"]),
        json!({"capacity": 3, "changed": true})
    );
    server.send("PATCH", "", json!({"default_capacity": 4})).await;
    assert_eq!((capacity("ana").await, capacity("ben").await), (json!(4), json!(4)));
    // A body without the field leaves it.
    server.send("PUT", "/providers/ben", json!({"capacity": 4})).await;
    server
        .send("PUT", "/providers/ben", json!({"display_name": "Ben"}))
        .await;
    server.send("PATCH", "", json!({"default_capacity": 5})).await;
    assert_eq!((capacity("ana").await, capacity("ben").await), (json!(5), json!(4)));
}

#[tokio::test]
async fn reads_of_an_unknown_roster_name_the_nearest() {
    let server = RosterServer::open().await;
    server.put("ana", 1).await;
    let reads = [
        "",
        "/providers",
        "/providers/ana",
        "/available",
        "/availability",
        "/stats",
        "/log",
        "/engagements/e1",
    ];
    for read in reads {
        let absent = server.daemon.get(&format!("/v1/rosters/suport{read}")).await;
        assert_eq!(
            (absent.status.as_u16(), &absent.json()["code"]),
            (404, &json!("not_found")),
            "{read}"
        );
        let detail = absent.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(
            detail.starts_with("there is no roster \"suport\"; did you mean \"support\"?"),
            "{read}: {detail}"
        );
    }
    let stranger = server.daemon.get("/v1/rosters/x/stats").await.json();
    assert!(
        stranger["detail"].to_string().contains("GET /v1/rosters lists"),
        "{stranger}"
    );
    let reserved = server
        .daemon
        .send("POST", "/v1/rosters/suport/reserve", json!({}))
        .await;
    assert_eq!(
        (reserved.status.as_u16(), &reserved.json()["code"]),
        (409, &json!("none_available"))
    );
    assert!(
        reserved.json()["detail"].to_string().contains("did you mean"),
        "{reserved:?}"
    );
    assert_eq!(
        server.daemon.get("/v1/rosters").await.json()["rosters"],
        json!(["support"])
    );
}

#[tokio::test]
async fn available_is_read_page_by_page() {
    let server = RosterServer::open().await;
    for (n, provider) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        server.seat(provider, 3).await;
        let busy = json!({"provider": provider});
        for _ in 0..n % 3 {
            server.send("POST", "/engagements", busy.clone()).await;
        }
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/available?limit=2&after={after}")).await.json();
        let providers = page["providers"].as_array().expect("a list");
        assert!(providers.len() <= 2, "{page}");
        names.extend(
            providers
                .iter()
                .map(|one| one["provider"].as_str().unwrap_or_default().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = next.replace('/', "%2F"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "d", "b", "e", "c"], "the least occupied first");
    let bad = server.get("/available?after=nonsense").await;
    assert_eq!(bad.status, 422, "{bad:?}");
}
