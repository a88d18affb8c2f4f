//! Waiting for leases over HTTP.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::clock::SystemClock;
use tenure_core::id::{Group, LeaseName, NodeId};
use tenure_core::lease::{Acquire, AcquireOutcome, LeaseStore, Queue, RequestId};
use tenure_core::store::Call;
use tenure_core::time::StoreTime;
use tenure_server::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::common::{Answer, Daemon, PATIENCE};

/// Longer than a test takes.
const LONG: u64 = 60_000;

fn path(lease: &str) -> String {
    format!("/v1/groups/g/leases/{lease}/acquire")
}

async fn acquire(daemon: &Daemon, lease: &str, body: Value) -> Answer {
    daemon.send("POST", &path(lease), body).await
}

/// Acquires a free lease; returns its token.
async fn granted(daemon: &Daemon, lease: &str, tenure: &str) -> u64 {
    let answer = acquire(daemon, lease, json!({ "tenure": tenure })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["token"].as_u64().expect("a token")
}

async fn release(daemon: &Daemon, lease: &str, tenure: &str, token: u64) {
    let body = json!({ "tenure": tenure, "token": token });
    let answer = daemon
        .send("POST", &format!("/v1/groups/g/leases/{lease}/release"), body)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// A waiting request on a connection of its own.
fn wait(daemon: &Daemon, lease: &str, tenure: &str, wait_ms: u64) -> JoinHandle<Answer> {
    let body = json!({ "tenure": tenure, "wait_ms": wait_ms });
    let request = daemon.request("POST", &path(lease)).json(&body);
    let request = request.timeout(Duration::from_millis(wait_ms) + PATIENCE);
    tokio::spawn(async move { Answer::read(request.send().await.expect("an answer")).await })
}

/// Waits until so many requests wait for a lease.
async fn until_waiting(daemon: &Daemon, lease: &str, waiting: u64) {
    let path = format!("/v1/groups/g/leases/{lease}");
    tenure_testkit::wait::until_async("the requests wait", PATIENCE, || async {
        daemon.get(&path).await.json()["waiting"] == waiting
    })
    .await;
}

/// A waiting request on a raw connection.
async fn wait_raw(daemon: &Daemon, lease: &str, tenure: &str) -> TcpStream {
    let body = json!({ "tenure": tenure, "wait_ms": LONG }).to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        path(lease),
        body.len()
    );
    let mut socket = TcpStream::connect(daemon.server.addr()).await.expect("a connection");
    socket.write_all(request.as_bytes()).await.expect("it is sent");
    socket
}

/// A daemon, the tenures `a`, `b` and `c`, and the token of the lease `poll`, which `a` holds.
async fn held() -> (Daemon, [String; 3], u64) {
    let daemon = Daemon::start().await;
    let tenures = [
        daemon.join("g", "a").await,
        daemon.join("g", "b").await,
        daemon.join("g", "c").await,
    ];
    let token = granted(&daemon, "poll", &tenures[0]).await;
    (daemon, tenures, token)
}

#[tokio::test]
async fn waiters_are_served_in_order_of_arrival() {
    let (daemon, [a, b, c], token) = held().await;
    let second = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    let third = wait(&daemon, "poll", &c, LONG);
    until_waiting(&daemon, "poll", 2).await;
    release(&daemon, "poll", &a, token).await;
    let answer = second.await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let grant = answer.json();
    assert_eq!((&grant["tenure"], &grant["outcome"]), (&json!(b), &json!("granted")));
    assert!(grant["waited_ms"].is_u64() && grant["place"] == 0, "{grant}");
    assert!(grant["token"].as_u64() > Some(token), "{grant}");
    assert!(answer.headers.contains_key("tenure-store-time"));
    until_waiting(&daemon, "poll", 1).await;
    release(&daemon, "poll", &b, grant["token"].as_u64().unwrap()).await;
    assert_eq!(third.await.unwrap().json()["tenure"], json!(c));
}

#[tokio::test]
async fn end_of_the_holder_grants_to_the_waiter() {
    let (daemon, [a, b, _], token) = held().await;
    let waiter = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    assert_eq!(daemon.delete(&format!("/v1/groups/g/tenures/{a}")).await.status, 204);
    let grant = waiter.await.unwrap().json();
    assert!(grant["token"].as_u64() > Some(token), "{grant}");
}

#[tokio::test]
async fn lapse_of_the_holder_grants_to_the_waiter() {
    let daemon = Daemon::start().await;
    let (a, b) = (daemon.join_for("g", "a", 1_000).await, daemon.join("g", "b").await);
    let token = granted(&daemon, "poll", &a).await;
    let grant = wait(&daemon, "poll", &b, LONG).await.unwrap().json();
    assert!(grant["token"].as_u64() > Some(token), "{grant}");
}

#[tokio::test]
async fn releaser_does_not_overtake_a_waiter() {
    let (daemon, [a, b, c], token) = held().await;
    let waiter = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    for other in [&a, &c] {
        let answer = acquire(&daemon, "poll", json!({ "tenure": other })).await;
        assert_eq!(
            answer.status == 200,
            *other == a,
            "only the holder keeps it: {answer:?}"
        );
    }
    release(&daemon, "poll", &a, token).await;
    let answer = acquire(&daemon, "poll", json!({ "tenure": a })).await;
    assert_eq!(answer.code(), "lease_held");
    assert_eq!(waiter.await.unwrap().status, 200);
}

#[tokio::test]
async fn closed_connection_gives_up_its_place() {
    for half_closed in [false, true] {
        let (daemon, [a, b, c], token) = held().await;
        let mut gone = wait_raw(&daemon, "poll", &b).await;
        until_waiting(&daemon, "poll", 1).await;
        let third = wait(&daemon, "poll", &c, LONG);
        until_waiting(&daemon, "poll", 2).await;
        if half_closed {
            gone.shutdown().await.expect("a half-closed connection");
        } else {
            drop(gone);
        }
        until_waiting(&daemon, "poll", 1).await;
        release(&daemon, "poll", &a, token).await;
        assert_eq!(
            third.await.unwrap().json()["tenure"],
            json!(c),
            "half closed: {half_closed}"
        );
    }
}

#[tokio::test]
async fn retry_on_another_connection_keeps_the_place() {
    let (daemon, [a, b, c], token) = held().await;
    let first = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    let behind = wait(&daemon, "poll", &c, LONG);
    until_waiting(&daemon, "poll", 2).await;
    let again = wait(&daemon, "poll", &b, LONG);
    let replaced = first.await.unwrap();
    assert_eq!(
        (replaced.status.as_u16(), replaced.code()),
        (409, "wait_replaced".to_owned())
    );
    assert!(replaced.json()["waited_ms"].is_u64(), "{replaced:?}");
    until_waiting(&daemon, "poll", 2).await;
    release(&daemon, "poll", &a, token).await;
    let grant = again.await.unwrap().json();
    assert_eq!(grant["tenure"], json!(b));
    assert!(!behind.is_finished());
    // The end of the older connection took nothing away.
    let seen = daemon.get("/v1/groups/g/leases/poll").await.json();
    assert_eq!((&seen["tenure"], &seen["token"]), (&json!(b), &grant["token"]));
}

#[tokio::test]
async fn wait_that_is_over_names_the_holder() {
    let (daemon, [a, b, _], _) = held().await;
    let answer = wait(&daemon, "poll", &b, 300).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (409, "lease_held".to_owned()));
    let problem = answer.json();
    assert_eq!(problem["tenure"], json!(a));
    assert!(problem["waited_ms"].as_u64() >= Some(300), "{problem}");
    until_waiting(&daemon, "poll", 0).await;
}

/// Neither that of the daemon nor that of a client.
#[tokio::test]
async fn wait_outlasts_request_timeouts() {
    let (daemon, [a, b, _], _) = held().await;
    let settings = HttpSettings {
        request_timeout: Duration::from_secs(2),
        ..HttpSettings::default()
    };
    let client = HttpStore::new(&daemon.base, SystemClock::shared(), Handle::current(), settings).unwrap();
    let within = Duration::from_secs(3);
    assert!(Settings::default().request_timeout < within);
    let acquire = Acquire {
        queue: Some(Queue {
            within,
            request: RequestId::new(1).unwrap(),
            node: NodeId::new("node").unwrap(),
        }),
        ..Acquire::new(b.parse().unwrap(), vec![LeaseName::new("poll").unwrap()])
    };
    let group = Group::new("g").unwrap();
    let acquired = client.acquire_with(&group, acquire, Call::default()).await.unwrap();
    let holder = a.parse().unwrap();
    assert!(matches!(&acquired.outcomes[..], [AcquireOutcome::Held { by, .. }] if *by == holder));
}

#[tokio::test]
async fn end_of_the_waiting_tenure_ends_the_wait() {
    let (daemon, [_, b, _], _) = held().await;
    let waiter = wait(&daemon, "poll", &b, 1_000);
    until_waiting(&daemon, "poll", 1).await;
    daemon.delete(&format!("/v1/groups/g/tenures/{b}")).await;
    until_waiting(&daemon, "poll", 0).await;
    assert_eq!(waiter.await.unwrap().code(), "tenure_ended");
}

#[tokio::test]
async fn shutdown_answers_waiters_and_gives_up_their_places() {
    let (mut daemon, [_, b, _], _) = held().await;
    let waiter = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    daemon.stop();
    let answer = waiter.await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "store_unavailable".to_owned())
    );
    assert_eq!(answer.json()["outcome"], "unchanged", "{answer:?}");
    let store = Arc::clone(&daemon.store);
    assert_eq!(daemon.shut_down().await.cut, 0);
    let (group, lease) = (Group::new("g").unwrap(), LeaseName::new("poll").unwrap());
    let lease = store.lease_of(&group, &lease).await.unwrap();
    assert_eq!(lease.expect("it is held").waiting, 0);
}

#[tokio::test]
async fn waiters_beyond_the_limit_are_refused_at_once() {
    let settings = Settings {
        max_waiters: 1,
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    let (a, b, c) = (
        daemon.join("g", "a").await,
        daemon.join("g", "b").await,
        daemon.join("g", "c").await,
    );
    granted(&daemon, "poll", &a).await;
    let _waiter = wait(&daemon, "poll", &b, LONG);
    until_waiting(&daemon, "poll", 1).await;
    let answer = wait(&daemon, "poll", &c, LONG).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (429, "queue_full".to_owned()));
    assert_eq!(answer.json()["waiting"], 1, "{answer:?}");
    assert!(answer.text.contains("limits.waiters"), "{answer:?}");
    // Other requests do not wait behind them.
    let answer = acquire(&daemon, "poll", json!({ "tenure": c })).await;
    assert_eq!(answer.code(), "lease_held");
    assert!(daemon.get("/metrics").await.text.contains("tenure_lease_waiters 1\n"));
}

/// Each waits on a connection of its own, and heartbeats need some, too.
#[tokio::test]
async fn waiters_leave_half_of_the_connections() {
    let settings = Settings {
        max_connections: 40,
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    let holder = daemon.join("g", "holder").await;
    granted(&daemon, "poll", &holder).await;
    let mut waiters = Vec::new();
    for number in 1..=20 {
        let tenure = daemon.join("g", &format!("m{number}")).await;
        waiters.push(wait_raw(&daemon, "poll", &tenure).await);
        until_waiting(&daemon, "poll", number).await;
    }
    let late = daemon.join("g", "late").await;
    let answer = wait(&daemon, "poll", &late, LONG).await.unwrap();
    assert_eq!(answer.code(), "queue_full");
    assert!(answer.text.contains("half of limits.connections"), "{answer:?}");
    for _ in 0..40 {
        let mut socket = TcpStream::connect(daemon.server.addr()).await.expect("a connection");
        let head = format!("PUT /v1/groups/g/tenures/{holder}/beat HTTP/1.0\r\n\r\n");
        socket.write_all(head.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.expect("an answer");
        assert!(
            answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn wait_for_a_target_or_above_a_minute_is_invalid() {
    let daemon = Daemon::start().await;
    let a = daemon.join("g", "a").await;
    daemon.send("PUT", "/v1/groups/g/targets/poll", json!({})).await;
    let answer = acquire(&daemon, "poll", json!({ "tenure": a, "wait_ms": 1 })).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (422, "invalid".to_owned()));
    granted(&daemon, "poll", &a).await;
    let answer = acquire(&daemon, "other", json!({ "tenure": a, "wait_ms": 60_001 })).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (422, "invalid".to_owned()));
    assert!(
        answer.text.contains("60001") && answer.text.contains("60000"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn not_after_limits_joining_the_queue_alone() {
    let (daemon, [a, b, c], token) = held().await;
    let now = daemon.get("/v1/now").await.json()["now"].as_str().unwrap().to_owned();
    let body = json!({ "tenure": b, "wait_ms": 1_000 });
    let late = daemon.request("POST", &path("poll")).json(&body);
    let late = late.header("tenure-not-after", "2020-01-01T00:00:00.000000Z");
    let late = Answer::read(late.send().await.unwrap()).await;
    assert_eq!(late.code(), "too_late");
    let soon: StoreTime = now.parse().unwrap();
    let body = json!({ "tenure": c, "wait_ms": LONG });
    let joins = daemon.request("POST", &path("poll")).json(&body);
    let joins = joins.header("tenure-not-after", (soon + Duration::from_secs(5)).to_string());
    let waiter = tokio::spawn(async move { Answer::read(joins.send().await.unwrap()).await });
    until_waiting(&daemon, "poll", 1).await;
    release(&daemon, "poll", &a, token).await;
    assert_eq!(waiter.await.unwrap().status, 200);
}

mod shared {
    use super::*;

    async fn slot(daemon: &Daemon, tenure: &str, holders: u16) -> Answer {
        acquire(daemon, "slots", json!({ "tenure": tenure, "holders": holders })).await
    }

    #[tokio::test]
    async fn each_holder_has_a_place_and_a_token() {
        let daemon = Daemon::start().await;
        let mut tokens = Vec::new();
        for (place, member) in ["a", "b"].into_iter().enumerate() {
            let tenure = daemon.join("g", member).await;
            let grant = slot(&daemon, &tenure, 2).await.json();
            assert_eq!(grant["place"], json!(place), "{grant}");
            tokens.push(grant["token"].as_u64().unwrap());
            assert_eq!(slot(&daemon, &tenure, 2).await.json()["outcome"], "kept");
        }
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        let c = daemon.join("g", "c").await;
        assert_eq!(slot(&daemon, &c, 2).await.code(), "lease_held");
        let differs = slot(&daemon, &c, 3).await;
        assert_eq!(
            (differs.status.as_u16(), differs.code()),
            (409, "holders_differ".to_owned())
        );
        assert_eq!(differs.json()["holders"], 2);
        let plain = acquire(&daemon, "slots", json!({ "tenure": c })).await;
        assert_eq!(plain.code(), "lease_held");
        let seen = daemon.get("/v1/groups/g/leases/slots").await.json();
        assert_eq!((&seen["holder"], &seen["token"]), (&json!("b"), &json!(tokens[1])));
        assert_eq!((&seen["free"], &seen["places"]), (&json!(0), &json!(2)));
        assert_eq!(seen["holders"][0]["holder"], "a");
        assert_eq!(seen["holders"][1]["place"], 1);
    }

    #[tokio::test]
    async fn number_outside_its_range_is_invalid() {
        let daemon = Daemon::start().await;
        let a = daemon.join("g", "a").await;
        for holders in [0, 1_001] {
            let answer = slot(&daemon, &a, holders).await;
            assert_eq!(answer.status, 422, "{answer:?}");
            assert!(answer.text.contains(&holders.to_string()), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn waiter_takes_the_place_that_came_free() {
        let daemon = Daemon::start().await;
        let mut grants = Vec::new();
        for member in ["a", "b"] {
            let tenure = daemon.join("g", member).await;
            let token = slot(&daemon, &tenure, 2).await.json()["token"].as_u64().unwrap();
            grants.push((tenure, token));
        }
        let c = daemon.join("g", "c").await;
        let body = json!({ "tenure": c, "holders": 2, "wait_ms": LONG });
        let request = daemon.request("POST", &path("slots")).json(&body);
        let waiter = tokio::spawn(async move { Answer::read(request.send().await.unwrap()).await });
        until_waiting(&daemon, "slots", 1).await;
        release(&daemon, "slots", &grants[1].0, grants[1].1).await;
        assert_eq!(waiter.await.unwrap().json()["place"], 1);
    }
}

mod operator {
    use super::*;

    async fn beat(daemon: &Daemon, tenure: &str, revision: Option<u64>) -> Answer {
        let body = match revision {
            Some(revision) => json!({ "revision": revision }),
            None => json!({}),
        };
        daemon
            .send("PUT", &format!("/v1/groups/g/tenures/{tenure}/beat"), body)
            .await
    }

    #[tokio::test]
    async fn released_lease_is_free_when_its_holder_has_noticed() {
        let (daemon, [a, b, _], token) = held().await;
        let revision = beat(&daemon, &a, Some(token)).await.json()["revision"].as_u64();
        let revoked = daemon.delete(&format!("/v1/groups/g/leases/poll?token={token}")).await;
        assert_eq!(revoked.status, 200, "{revoked:?}");
        let revoked = revoked.json();
        assert_eq!((&revoked["holder"], &revoked["tenure"]), (&json!("a"), &json!(a)));
        assert_eq!(
            (&revoked["token"], &revoked["free_when"]),
            (&json!(token), &json!("noticed"))
        );
        assert!(
            (1..=30_000).contains(&revoked["free_in_ms"].as_u64().unwrap()),
            "{revoked}"
        );
        let waiter = wait(&daemon, "poll", &b, LONG);
        until_waiting(&daemon, "poll", 1).await;
        // A beat with the old revision learns of the release, and the next one shows that it was learned.
        let newer = beat(&daemon, &a, revision).await.json()["revision"].as_u64();
        assert!(newer > revision, "{newer:?} {revision:?}");
        assert!(!waiter.is_finished());
        beat(&daemon, &a, newer).await;
        let grant = waiter.await.unwrap().json();
        assert!(grant["token"].as_u64() > Some(token), "{grant}");
    }

    #[tokio::test]
    async fn holder_that_cannot_notice_keeps_it_until_its_tenure_ends() {
        let (daemon, [a, b, _], _) = held().await;
        let revoked = daemon.delete("/v1/groups/g/leases/poll?holder=a").await.json();
        assert_eq!(revoked["free_when"], "tenure_ends", "{revoked}");
        let waiter = wait(&daemon, "poll", &b, LONG);
        until_waiting(&daemon, "poll", 1).await;
        beat(&daemon, &a, None).await;
        let refused = acquire(&daemon, "poll", json!({ "tenure": a })).await;
        assert_eq!(refused.code(), "lease_held", "also for its holder");
        assert!(!waiter.is_finished());
        daemon.delete(&format!("/v1/groups/g/tenures/{a}")).await;
        assert_eq!(waiter.await.unwrap().status, 200);
    }

    #[tokio::test]
    async fn release_names_a_grant_that_exists() {
        let (daemon, _, token) = held().await;
        for (query, status, code) in [
            ("?holder=b".to_owned(), 409, "not_holder"),
            (format!("?token={}", token - 1), 409, "not_holder"),
            (format!("?holder=a&token={token}"), 422, "invalid"),
            ("?token=0".to_owned(), 422, "invalid"),
        ] {
            let answer = daemon.delete(&format!("/v1/groups/g/leases/poll{query}")).await;
            assert_eq!((answer.status.as_u16(), &*answer.code()), (status, code), "{query}");
        }
        assert_eq!(daemon.delete("/v1/groups/g/leases/none").await.code(), "not_found");
        assert_eq!(daemon.get("/v1/groups/g/leases/poll").await.json()["token"], token);
    }
}

/// An answer on a half-closed connection is not written: the daemon cannot know whether anyone reads it.
#[tokio::test]
async fn half_closed_connection_gets_no_answer() {
    let (daemon, [_, b, _], _) = held().await;
    let mut socket = wait_raw(&daemon, "poll", &b).await;
    until_waiting(&daemon, "poll", 1).await;
    socket.shutdown().await.expect("a half-closed connection");
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await;
    read.expect("an end").ok();
    assert_eq!(answer, "");
}
