//! The Rust client against a daemon whose network, or whose neighbour, misbehaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::clock::SystemClock;
use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::event::EventLog;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{LeaseStore, RevokeOf};
use tenure_core::membership::{Beat, BeatReply, EndBy, EndReason, Join, Labels, MembershipStore};
use tenure_core::store::{Backend, Call, Health, Severity, Store};
use tenure_server::Settings;
use tenure_testkit::proxy::{Mode, Proxy};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Barrier;

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Daemon, PATIENCE, promised};

mod clock;

/// For who is to give up.
const QUICK: HttpSettings = HttpSettings {
    request_timeout: Duration::from_millis(300),
    connect_timeout: Duration::from_millis(200),
    sweep_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(5),
};

/// For clients that must get an answer, however slow the machine is.
const PATIENT: HttpSettings = HttpSettings {
    request_timeout: PATIENCE,
    connect_timeout: PATIENCE,
    sweep_timeout: PATIENCE,
    idle_timeout: PATIENCE,
};

fn client(url: &str, settings: HttpSettings) -> HttpStore {
    HttpStore::new(url, SystemClock::shared(), Handle::current(), settings).expect("a client")
}

fn group() -> Group {
    Group::new("g").expect("a good name")
}

fn join(member: &str) -> Join {
    Join {
        member: MemberId::new(member).expect("a good name"),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    }
}

/// Answers each connection's one request with the next of these replies, byte for byte, and closes it; then with the
/// last one for ever. Tells the heads of the requests.
async fn stub(replies: &[&str]) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let (heads, asked) = tokio::sync::mpsc::unbounded_channel();
    let replies: Vec<String> = replies.iter().map(|reply| (*reply).to_owned()).collect();
    tokio::spawn(async move {
        for n in 0.. {
            let Ok((mut socket, _)) = listener.accept().await else {
                return;
            };
            let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match socket.read(&mut buffer).await {
                    Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
                    _ => break,
                }
            }
            heads.send(String::from_utf8_lossy(&head).into_owned()).ok();
            let reply = replies.get(n).or(replies.last()).expect("a reply");
            socket.write_all(reply.as_bytes()).await.ok();
        }
    });
    (addr, asked)
}

fn reply(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn client_behaves_as_a_store() {
    let daemon = Daemon::start().await;
    let store = client(&daemon.base, PATIENT);
    let joined = store.join(&group(), &join("a"), Call::default()).await.unwrap();
    let beat = Beat {
        tenure: joined.tenure.clone(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
        seen: tenure_core::membership::Revision::NONE,
    };
    assert_eq!(
        store.beat(&group(), &[beat]).await.unwrap().replies,
        [BeatReply::Renewed {
            expires_in: joined.ttl,
            revision: tenure_core::membership::Revision::NONE
        }]
    );
    assert_eq!(store.groups().await.unwrap(), [group()]);
    assert_eq!(store.place(), daemon.base);
    assert!(
        store
            .examine()
            .await
            .iter()
            .any(|finding| finding.severity == Severity::Ok)
    );
    assert_eq!(
        store
            .end(&group(), &joined.tenure, EndBy::Expel, Call::default())
            .await
            .unwrap(),
        EndReason::Expelled
    );
    store.close().await;
    let closed = store.now().await.unwrap_err();
    assert_eq!(
        (closed.kind(), closed.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
}

#[tokio::test]
async fn url_path_prefixes_every_request() {
    let (addr, mut asked) = stub(&[&reply(
        "200 OK",
        "application/json",
        r#"{"now":"2026-01-01T00:00:00Z"}"#,
    )])
    .await;
    let store = client(&format!("http://{addr}/behind/a/proxy"), PATIENT);
    store.now().await.unwrap();
    assert!(
        asked
            .recv()
            .await
            .unwrap()
            .starts_with("GET /behind/a/proxy/v1/now HTTP/1.1\r\n")
    );
}

#[tokio::test]
async fn a_read_is_sent_again_once_when_its_connection_breaks() {
    let good = reply("200 OK", "application/json", r#"{"now":"2026-01-01T00:00:00Z"}"#);
    let (addr, mut asked) = stub(&["HTTP/1.1 200 OK\r\ncontent-le", &good]).await;
    client(&format!("http://{addr}"), PATIENT)
        .now()
        .await
        .expect("the second answer");
    assert!(asked.recv().await.is_some() && asked.recv().await.is_some());

    let (addr, mut asked) = stub(&["HTTP/1.1 200 OK\r\ncontent-le"]).await;
    let error = client(&format!("http://{addr}"), PATIENT).now().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert!(asked.recv().await.is_some() && asked.recv().await.is_some());
    assert!(asked.try_recv().is_err(), "exactly twice");
}

#[tokio::test]
async fn a_beat_and_a_change_are_sent_again_once() {
    let now = reply("200 OK", "application/json", r#"{"now":"2026-01-01T00:00:00Z"}"#);
    let beaten =
        r#"{"results":[{"tenure":"a@1","status":"renewed","expires_in_ms":5}],"as_of":"2026-01-01T00:00:00Z"}"#;
    let (addr, _asked) = stub(&["HTTP/1.1 200", &reply("200 OK", "application/json", beaten)]).await;
    let beat = Beat {
        tenure: "a@1".parse().unwrap(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
        seen: tenure_core::membership::Revision::NONE,
    };
    let store = client(&format!("http://{addr}"), PATIENT);
    assert_eq!(
        store
            .beat(&group(), &[beat])
            .await
            .expect("the second answer")
            .replies
            .len(),
        1
    );

    let (addr, mut asked) = stub(&[&now, "HTTP/1.1 201"]).await;
    let error = client(&format!("http://{addr}"), PATIENT)
        .join(&group(), &join("a"), Call::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
    assert!(
        asked.recv().await.unwrap().starts_with("GET /v1/now"),
        "the store's time must be known first"
    );
    for _ in 0..2 {
        let sent = asked.recv().await.unwrap();
        assert!(
            sent.starts_with("POST") && sent.contains("tenure-not-after: 2026-01-01T00:00:"),
            "{sent}"
        );
    }
    assert!(asked.try_recv().is_err(), "twice");
}

/// The error of the repetition alone would say that nothing changed.
#[tokio::test]
async fn a_refused_repetition_has_an_unknown_outcome() {
    let now = reply("200 OK", "application/json", r#"{"now":"2026-01-01T00:00:00Z"}"#);
    let refusal = r#"{"code":"store_unavailable","status":503,"title":"t","detail":"d","outcome":"unchanged"}"#;
    let refusal = reply("503 Service Unavailable", "application/problem+json", refusal);
    let (addr, mut asked) = stub(&[&now, "HTTP/1.1 201", &refusal]).await;
    let joining = client(&format!("http://{addr}"), PATIENT);
    let error = joining.join(&group(), &join("a"), Call::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
    for _ in 0..3 {
        asked.recv().await.unwrap();
    }
    assert!(asked.try_recv().is_err(), "the membership decides what follows");
}

/// Another caller may hold the lease by then.
#[tokio::test]
async fn a_revocation_is_not_sent_again() {
    let now = reply("200 OK", "application/json", r#"{"now":"2026-01-01T00:00:00Z"}"#);
    let (addr, mut asked) = stub(&[&now, "HTTP/1.1 200"]).await;
    let store = client(&format!("http://{addr}"), PATIENT);
    let lease = LeaseName::new("l").expect("a good name");
    let error = store
        .revoke_lease(&group(), &lease, RevokeOf::Any, Call::default())
        .await;
    assert_eq!(error.unwrap_err().outcome(), Outcome::Unknown);
    assert!(asked.recv().await.unwrap().starts_with("GET /v1/now"));
    assert!(asked.recv().await.unwrap().starts_with("DELETE"));
    assert!(asked.try_recv().is_err(), "once");
}

/// Answers the first request of each of `idle` connections when all have arrived, and breaks each at its second
/// request. Serves later connections.
async fn pool_that_breaks(idle: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let (all, broken) = (Arc::new(Barrier::new(idle)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&broken);
    tokio::spawn(async move {
        for n in 0.. {
            let Ok((socket, _)) = listener.accept().await else {
                return;
            };
            let (all, count) = (Arc::clone(&all), Arc::clone(&count));
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                for request in 0.. {
                    if !read_request(&mut socket).await {
                        return;
                    }
                    match (n < idle, request) {
                        (true, 0) => _ = all.wait().await,
                        (true, _) => {
                            count.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        _ => {}
                    }
                    let body = r#"{"tenure":"a@1","member":"a","term":1,"ttl_ms":30000,"expires_in_ms":30000,
                        "now":"2026-01-01T00:00:00Z","as_of":"2026-01-01T00:00:00Z"}"#;
                    let answer = reply("201 Created", "application/json", body).replace("connection: close\r\n", "");
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, broken)
}

/// Returns whether there was one.
async fn read_request(socket: &mut BufReader<TcpStream>) -> bool {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if !matches!(socket.read_line(&mut line).await, Ok(count) if count > 0) {
            return false;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            return socket.read_exact(&mut vec![0; length]).await.is_ok();
        }
    }
}

#[tokio::test]
async fn the_first_dead_connection_empties_the_pool() {
    let (addr, broken) = pool_that_breaks(20).await;
    let store = client(&format!("http://{addr}"), PATIENT);
    let reads = (0..20).map(|_| store.now());
    assert!(futures_util::future::join_all(reads).await.iter().all(Result::is_ok));
    let joined = store.join(&group(), &join("a"), Call::default()).await;
    assert_eq!(joined.expect("answered on a new connection").tenure.to_string(), "a@1");
    assert_eq!(broken.load(Ordering::Relaxed), 1);
}

/// The client's own request, which it sends with its not-after, is looked at in
/// `a_beat_and_a_change_are_sent_again_once`; here the connection stays open, so that the daemon has to answer.
#[tokio::test]
async fn a_call_that_the_network_held_back_for_too_long_is_refused() {
    let daemon = Daemon::start().await;
    let proxy = Proxy::start(daemon.server.addr());
    proxy.set(Mode::HoldRequests);
    let mut held = tokio::net::TcpStream::connect(proxy.addr())
        .await
        .expect("a connection");
    let not_after = daemon.store.now().await.expect("the time") + Duration::from_millis(50);
    let body = json!({"member": "late"}).to_string();
    let request = format!(
        "POST /v1/groups/g/members HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         tenure-not-after: {not_after}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    held.write_all(request.as_bytes()).await.expect("sent");
    tenure_testkit::wait::until_async("it is too late", PATIENCE, || async {
        daemon.store.now().await.is_ok_and(|now| now > not_after)
    })
    .await;
    proxy.release();
    let mut answer = String::new();
    held.read_to_string(&mut answer).await.expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 409") && answer.contains("too_late"),
        "{answer}"
    );
    assert_eq!(daemon.get("/v1/groups/g/members/late").await.code(), "not_found");
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_reading_back_tells() {
    let daemon = Daemon::start().await;
    let proxy = Proxy::start(daemon.server.addr());
    // Long enough that the daemon does what it is asked within it, however slow the machine is.
    let settings = HttpSettings {
        request_timeout: Duration::from_secs(5),
        ..PATIENT
    };
    let store = client(&proxy.url("http"), settings);
    store.now().await.expect("a connection");
    store
        .join(&group(), &join("first"), Call::default())
        .await
        .expect("a join");
    proxy.set(Mode::DropReplies);
    let error = store.join(&group(), &join("a"), Call::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
    proxy.set(Mode::Pass);
    assert!(
        store
            .member(&group(), &MemberId::new("a").unwrap())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_black_hole_is_an_error_in_time_and_shows_in_the_health() {
    let daemon = Daemon::start().await;
    let proxy = Proxy::start(daemon.server.addr());
    let store = client(&proxy.url("http"), QUICK);
    tenure_testkit::wait::until_async("a connection", PATIENCE, || async { store.now().await.is_ok() }).await;
    proxy.set(Mode::BlackHole);
    for _ in 0..2 {
        let error = promised("an error", QUICK.request_timeout * 5, store.now())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
    }
    assert!(matches!(store.health(), Health::Down { .. }));
    proxy.set(Mode::Pass);
    tenure_testkit::wait::until_async("it answers again", PATIENCE, || async { store.now().await.is_ok() }).await;
    assert_eq!(store.health(), Health::Up);
}

#[tokio::test]
async fn refused_connection_is_immediate_and_changed_nothing() {
    let proxy = Proxy::start("127.0.0.1:9".parse().unwrap());
    proxy.set(Mode::Refuse);
    let store = client(&proxy.url("http"), PATIENT);
    let error = store.join(&group(), &join("a"), Call::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert!(matches!(store.health(), Health::Down { .. }));
}

#[tokio::test]
async fn store_outage_behind_the_daemon_is_unavailable() {
    let clock = SystemClock::shared();
    let moody = Faulty::new(clock.clone());
    let daemon = Daemon::over(moody.clone(), clock, Settings::default()).await;
    let store = client(&daemon.base, PATIENT);
    let joined = store.join(&group(), &join("a"), Call::default()).await.unwrap();
    moody.be(Mood::Hangs);
    let error = store
        .end(&group(), &joined.tenure, EndBy::Leave, Call::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown),
        "{error:?}"
    );
    assert!(error.retry_after().is_some() && matches!(store.health(), Health::Down { .. }));
    moody.be(Mood::Good);
    store.now().await.unwrap();
    assert_eq!(store.health(), Health::Up);
}

#[tokio::test]
async fn answer_of_another_server_is_an_error() {
    let clock = reply("200 OK", "application/json", r#"{"now": "2026-01-01T00:00:00Z"}"#);
    for (status, kind, outcome) in [
        ("404 Not Found", ErrorKind::Misconfigured, Outcome::Unchanged),
        ("301 Moved", ErrorKind::Misconfigured, Outcome::Unchanged),
        ("403 Forbidden", ErrorKind::Denied, Outcome::Unchanged),
        ("502 Bad Gateway", ErrorKind::Unavailable, Outcome::Unknown),
        ("200 OK", ErrorKind::Internal, Outcome::Unknown),
    ] {
        let page = reply(status, "text/html", "<h1>nginx</h1>");
        let (addr, _asked) = stub(&[&page]).await;
        let error = client(&format!("http://{addr}"), PATIENT)
            .members(&group(), &Default::default())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (kind, Outcome::Unchanged),
            "{status}: {error:?}"
        );
        let (addr, _asked) = stub(&[&clock, &page]).await;
        let error = client(&format!("http://{addr}"), PATIENT)
            .join(&group(), &join("a"), Call::default())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (kind, outcome), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn a_wait_for_events_ends_with_its_patience() {
    let daemon = Daemon::start().await;
    let store = client(&daemon.base, PATIENT);
    store.join(&group(), &join("a"), Call::default()).await.unwrap();
    let last = store
        .events(
            &group(),
            &tenure_core::event::EventQuery {
                limit: 10,
                ..Default::default()
            },
        )
        .await
        .unwrap()
        .last;
    store
        .wait_for_events(&group(), last, Duration::from_millis(20))
        .await
        .expect("nothing happened, and that is fine");
}

#[tokio::test]
async fn requests_run_on_the_runtime_that_was_given() {
    let daemon = Daemon::start().await;
    let thread = tenure::heartbeat::HeartbeatThread::start().expect("a thread");
    let clock = SystemClock::shared();
    let store = HttpStore::new(&daemon.base, clock, thread.runtime().clone(), PATIENT).unwrap();
    let store = Arc::new(store);
    store.now().await.expect("an answer");
    drop(thread);
    let error = store.now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "its runtime has ended: {error:?}");
}
