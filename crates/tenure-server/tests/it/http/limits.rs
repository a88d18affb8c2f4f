//! Too much at once: slow bodies, floods, and more connections than there may be.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::loops::FLOOR;
use tenure_core::call::Verb;
use tenure_server::Settings;
use tenure_testkit::wait::until_async;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Answer, Daemon, PATIENCE, slow};

type Sent = JoinHandle<reqwest::Result<reqwest::Response>>;

fn send(daemon: &Daemon, method: &str, path: &str, body: &Value) -> Sent {
    tokio::spawn(daemon.request(method, path).json(body).send())
}

async fn answer(sent: Sent) -> Answer {
    Answer::read(sent.await.expect("it was sent").expect("an answer")).await
}

/// A connection that stays open between requests.
struct Kept(BufReader<TcpStream>);

impl Kept {
    async fn open(daemon: &Daemon) -> Self {
        Self(BufReader::new(TcpStream::connect(daemon.server.addr()).await.unwrap()))
    }

    /// The head of the answer; its body is read as well.
    async fn ask(&mut self, head: &str, body: &str) -> Option<String> {
        let request = format!("{head}\r\nHost: localhost\r\n\r\n{body}");
        self.0.write_all(request.as_bytes()).await.ok()?;
        let (mut head, mut length) = (String::new(), 0);
        let read = async {
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                if self.0.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                let line = line.to_lowercase();
                if let Some(told) = line.strip_prefix("content-length: ") {
                    length = told.trim().parse().unwrap();
                }
                head += &line;
            }
            self.0.read_exact(&mut vec![0; length]).await.ok()
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an end")?;
        Some(head)
    }
}

#[tokio::test]
async fn slow_bodies_take_no_place() {
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
async fn other_requests_leave_beats_their_room() {
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
async fn a_flood_in_one_group_leaves_room_for_the_beats_of_another() {
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
    let mut kept = Kept::open(&daemon).await;
    let head = kept.ask("GET /v1/groups HTTP/1.1", "").await.expect("an answer");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(daemon.server.addr()).await.unwrap());
        let mut fresh = Kept::open(&daemon).await;
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

#[tokio::test]
async fn a_refusal_before_the_body_says_that_the_connection_ends() {
    let daemon = Daemon::start().await;
    let head = "POST /v1/groups/g/members HTTP/1.1\r\nOrigin: http://elsewhere.example";
    let mut long = Kept::open(&daemon).await;
    let answer = long
        .ask(&format!("{head}\r\nContent-Length: 1000000"), "{")
        .await
        .unwrap();
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(long.0.read(&mut [0]).await.unwrap_or(0), 0, "and it does");
    let mut expecting = Kept::open(&daemon).await;
    let expect = format!("{head}\r\nContent-Length: 2\r\nExpect: 100-continue");
    let answer = expecting.ask(&expect, "").await.unwrap();
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // A short body that is there is read, and the next request is answered on the same connection.
    let mut short = Kept::open(&daemon).await;
    for _ in 0..3 {
        let answer = short
            .ask(&format!("{head}\r\nContent-Length: 2"), "{}")
            .await
            .expect("still open");
        assert!(
            answer.starts_with("http/1.1 4") && !answer.contains("connection: close"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_ends_its_connection() {
    let daemon = Daemon::with(Settings {
        body_limit: 100,
        ..Settings::default()
    })
    .await;
    for head in ["Content-Length: 101", "Transfer-Encoding: chunked"] {
        let mut long = Kept::open(&daemon).await;
        let body = format!("{:x}\r\n{}", 1_000, "x".repeat(900));
        let post = format!("POST /v1/groups/g/members HTTP/1.1\r\nContent-Type: application/json\r\n{head}");
        let answer = long.ask(&post, &body).await.unwrap();
        assert!(
            answer.starts_with("http/1.1 413") && answer.contains("connection: close"),
            "{answer}"
        );
    }
}
