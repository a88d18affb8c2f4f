//! Overload: slow bodies, floods, and too many connections.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::loops::FLOOR;
use tenure_core::call::Verb;
use tenure_server::Settings;
use tenure_testkit::wait::until_async;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::common::faulty::{Faulty, Mood};
use crate::common::raw::RawConnection;
use crate::common::{Answer, Daemon, PATIENCE, slow};

type Sent = JoinHandle<reqwest::Result<reqwest::Response>>;

fn send(daemon: &Daemon, method: &str, path: &str, body: &Value) -> Sent {
    tokio::spawn(daemon.request(method, path).json(body).send())
}

async fn answer(sent: Sent) -> Answer {
    Answer::read(sent.await.expect("it was sent").expect("an answer")).await
}

#[tokio::test]
async fn slow_bodies_take_no_permit() {
    let daemon = Daemon::with(Settings {
        max_requests: 1,
        ..slow()
    })
    .await;
    let tenure = daemon.join("g", "a").await;
    let mut slow = Vec::new();
    for n in 0..20 {
        slow.push(daemon.begin_join("g", &format!("m{n}")).await);
    }
    daemon.until_arriving(20).await;
    assert_eq!(daemon.get("/v1/groups/g/members").await.status, 200);
    let beat = format!("/v1/groups/g/tenures/{tenure}/beat");
    assert_eq!(daemon.send("PUT", &beat, json!({})).await.status, 200);
    for body in slow {
        assert_eq!(body.finish().await, 201);
    }
}

#[tokio::test]
async fn other_requests_leave_permits_for_beats() {
    let settings = Settings {
        max_requests: 2,
        ..Settings::default()
    };
    let (daemon, store, _) = Daemon::still(settings).await;
    let tenure = daemon.join("g", "a").await;
    store.be(Mood::WaitsAt(Verb::Members));
    let looks = [0, 1].map(|_| tokio::spawn(daemon.request("GET", "/v1/groups/g/members").send()));
    daemon.until_inside(2).await;
    assert_eq!(daemon.get("/v1/groups/g").await.code(), "overloaded");
    let beat = format!("/v1/groups/g/tenures/{tenure}/beat");
    assert_eq!(daemon.send("PUT", &beat, json!({})).await.status, 200);
    let beats = json!({"beats": [{"tenure": tenure}]});
    assert_eq!(daemon.send("POST", "/v1/groups/g/beats", beats).await.status, 200);
    store.open(2);
    for look in looks {
        assert_eq!(answer(look).await.status, 200);
    }
}

/// Room for nine requests of one group of a caller, and a store that may take long.
fn few_requests() -> Settings {
    Settings {
        max_requests: 9,
        request_timeout: Duration::from_secs(2),
        ..Settings::default()
    }
}

fn beats(tenure: &str) -> Value {
    json!({"beats": [{"tenure": tenure}]})
}

/// Beats that take all the room of a group, since the store answers none of them.
async fn flood(daemon: &Daemon, store: &Faulty, group: &str, tenure: &str) -> Vec<Sent> {
    store.be(Mood::WaitsAt(Verb::Beat));
    let path = format!("/v1/groups/{group}/beats");
    let flood = (0..9).map(|_| send(daemon, "POST", &path, &beats(tenure))).collect();
    daemon.until_inside(9).await;
    flood
}

#[tokio::test]
async fn flood_in_one_group_spares_beats_of_another() {
    let (daemon, store, clock) = Daemon::still(few_requests()).await;
    let (tenure, other) = (daemon.join("flooding", "a").await, daemon.join("other", "b").await);
    let mut flood = flood(&daemon, &store, "flooding", &tenure).await;
    let refused = daemon.send("POST", "/v1/groups/flooding/beats", beats(&tenure)).await;
    assert_eq!(refused.code(), "overloaded");
    let metrics = daemon.get("/metrics").await.text;
    assert!(metrics.contains("\ntenure_beats_refused_total 1\n"), "{metrics}");
    // It is reported to the store, so that no member of that group ends because of it.
    until_async("the refusal is reported", PATIENCE, || async {
        // The least time between two turns of the loop that reports it.
        clock.advance(FLOOR);
        !store.spared().is_empty()
    })
    .await;
    assert_eq!(store.spared()[0].as_str(), "flooding");
    flood.push(send(&daemon, "POST", "/v1/groups/other/beats", &beats(&other)));
    daemon.until_inside(10).await;
    store.open(10);
    for sent in flood {
        assert_eq!(answer(sent).await.status, 200);
    }
}

#[tokio::test]
async fn a_failing_group_delays_no_report_of_others() {
    let (daemon, store, clock) = Daemon::still(few_requests()).await;
    let (away, other) = (daemon.join("away", "a").await, daemon.join("other", "b").await);
    let mut flood = flood(&daemon, &store, "away", &away).await;
    flood.push(send(&daemon, "POST", "/v1/groups/other/beats", &beats(&other)));
    daemon.until_inside(10).await;
    store.be(Mood::FailsIn("away"));
    for (group, tenure) in [("away", &away), ("other", &other)] {
        let path = format!("/v1/groups/{group}/beats");
        let refused = daemon.send("POST", &path, beats(tenure)).await;
        assert_eq!(refused.code(), "overloaded", "{group}");
    }
    until_async("the refusal of the other group is reported", PATIENCE, || async {
        clock.advance(FLOOR);
        store.spared().iter().any(|group| group.as_str() == "other")
    })
    .await;
    store.be(Mood::Good);
    store.open(10);
    for sent in flood {
        assert_eq!(answer(sent).await.status, 200);
    }
}

#[tokio::test]
async fn silent_connections_are_shed_before_answered_ones() {
    let daemon = Daemon::with(Settings {
        max_connections: 8,
        ..Settings::default()
    })
    .await;
    let mut kept = RawConnection::open(&daemon).await;
    let head = kept.ask("GET /v1/groups HTTP/1.1", "").await.expect("an answer");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(daemon.server.addr()).await.unwrap());
        let mut fresh = RawConnection::open(&daemon).await;
        assert!(
            fresh.ask("GET /livez HTTP/1.1", "").await.is_some(),
            "a new one is answered"
        );
    }
    let head = kept.ask("GET /v1/groups HTTP/1.1", "").await.expect("it was kept");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let metrics = daemon.get("/metrics").await.text;
    assert!(metrics.contains("tenure_http_crowded_out_total "), "{metrics}");
    let closed = tokio::time::timeout(PATIENCE, silent[0].read(&mut [0]))
        .await
        .expect("it was closed");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
}

/// A caller that makes a group for each job is slowed down; members of groups that exist are not.
#[tokio::test]
async fn new_groups_are_limited_and_members_are_not() {
    let daemon = Daemon::with(Settings {
        new_groups: 3,
        ..Settings::default()
    })
    .await;
    for group in ["ci-1", "ci-2"] {
        daemon.join(group, "a").await;
    }
    let target = daemon.send("PUT", "/v1/groups/ci-3/targets/t", json!({})).await;
    assert_eq!(target.status, 201, "{target:?}");
    for (method, path, body) in [
        (
            "POST",
            "/v1/groups/ci-4/members",
            json!({"member": "a", "ttl_ms": 5_000}),
        ),
        ("PUT", "/v1/groups/ci-4/targets/t", json!({})),
    ] {
        let refused = daemon.send(method, path, body).await;
        assert_eq!(
            (refused.status.as_u16(), &*refused.code()),
            (429, "rate_limited"),
            "{path}"
        );
        let wait = refused.json()["retry_after_ms"].as_u64().expect("a time");
        assert!((1..=20_000).contains(&wait), "{wait}");
        let told = refused.json();
        let detail = told["detail"].as_str().expect("a text");
        assert!(
            detail.contains("limits.new_groups") && detail.contains("ci-4"),
            "{detail}"
        );
    }
    assert_eq!(
        daemon.get("/v1/groups/ci-4").await.json()["members"],
        0,
        "nothing was done"
    );
    for n in 0..10 {
        daemon.join("ci-1", &format!("m{n}")).await;
    }
}
