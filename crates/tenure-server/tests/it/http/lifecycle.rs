//! Start and shutdown.

use std::time::Duration;

use serde_json::json;
use tenure_core::clock::SystemClock;
use tenure_core::memory::MemoryStore;
use tenure_core::store::StoreOptions;
use tenure_server::{Parts, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::sse::Stream;
use crate::common::{Daemon, PATIENCE, slow};

#[tokio::test]
async fn shutdown_drains_requests_and_ends_streams() {
    let settings = Settings {
        drain_timeout: PATIENCE * 3,
        ..slow()
    };
    let mut daemon = Daemon::with(settings).await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    let under_way = daemon.begin_join("g", "late").await;
    daemon.until_arriving(1).await;
    daemon.stop();
    assert_eq!(stream.next().await, None, "the stream ended");
    let addr = daemon.server.addr();
    tenure_testkit::wait::until_async("no connection is accepted", PATIENCE, || async {
        TcpStream::connect(addr).await.is_err()
    })
    .await;
    assert_eq!(under_way.finish().await, 201);
    assert_eq!(daemon.shut_down().await.cut, 0);
}

#[tokio::test]
async fn idle_connection_does_not_delay_shutdown() {
    let daemon = Daemon::start().await;
    daemon.get("/livez").await;
    let fresh = TcpStream::connect(daemon.server.addr()).await.unwrap();
    assert_eq!(daemon.shut_down().await.cut, 0);
    drop(fresh);
}

#[tokio::test]
async fn drain_is_bounded() {
    let settings = Settings {
        drain_timeout: Duration::from_millis(50),
        ..slow()
    };
    let daemon = Daemon::with(settings).await;
    let under_way = daemon.begin_join("g", "late").await;
    daemon.until_arriving(1).await;
    assert_eq!(daemon.shut_down().await.cut, 1);
    assert!(under_way.ends_unanswered().await);
}

#[tokio::test]
async fn second_stop_does_not_wait_for_requests() {
    let settings = Settings {
        drain_timeout: Duration::from_secs(3600),
        ..slow()
    };
    let mut daemon = Daemon::with(settings).await;
    let under_way = daemon.begin_join("g", "late").await;
    daemon.until_arriving(1).await;
    let abort = daemon.server.aborter();
    daemon.stop();
    abort();
    daemon.shut_down().await;
    assert!(under_way.ends_unanswered().await);
}

#[tokio::test]
async fn non_loopback_listener_needs_insecure_listen() {
    let parts = || {
        let clock = SystemClock::shared();
        Parts::new(MemoryStore::new(StoreOptions::default(), clock.clone()), clock)
    };
    let everywhere = || TcpListener::bind("0.0.0.0:0");
    let error = Server::start(
        everywhere().await.unwrap(),
        parts(),
        Settings::default(),
        std::future::pending(),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("insecure_listen") && error.to_string().contains("127.0.0.1"),
        "{error}"
    );
    let settings = Settings {
        insecure_listen: true,
        ..Settings::default()
    };
    Server::start(everywhere().await.unwrap(), parts(), settings, std::future::pending()).expect("as asked for");
}

#[tokio::test]
async fn several_servers_run_in_one_process() {
    let (one, two) = (Daemon::start().await, Daemon::start().await);
    one.join("g", "a").await;
    assert_eq!(two.get("/v1/groups/g/members/a").await.code(), "not_found");
    assert_eq!(
        (one.get("/metrics").await.status, two.get("/metrics").await.status),
        (reqwest::StatusCode::OK, reqwest::StatusCode::OK)
    );
    one.shut_down().await;
    assert_eq!(two.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let settings = Settings {
        stall_timeout: Duration::from_millis(100),
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    let tenure = daemon.join("g", &"m".repeat(200)).await;
    let beats = json!({"beats": vec![json!({ "tenure": tenure }); 10_000]}).to_string();
    let mut socket = TcpStream::connect(daemon.server.addr()).await.unwrap();
    let head = format!(
        "POST /v1/groups/g/beats HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        beats.len()
    );
    // Megabytes of answers to requests on one connection, none of them read: the kernel's buffers fill up, and the
    // server gives up on the connection.
    let unread = async {
        for _ in 0..100 {
            socket.write_all(head.as_bytes()).await?;
            socket.write_all(beats.as_bytes()).await?;
        }
        socket.read(&mut []).await
    };
    let ended = tokio::time::timeout(PATIENCE, unread)
        .await
        .expect("the connection was dropped");
    assert!(ended.is_err(), "{ended:?}");
    assert!(daemon.get("/metrics").await.text.contains("tenure_http_stalled_total "));
}

#[tokio::test]
async fn slow_or_oversized_head_is_refused() {
    let settings = Settings {
        idle_timeout: Duration::from_millis(100),
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    let mut slow = TcpStream::connect(daemon.server.addr()).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n")
        .await
        .unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, slow.read_to_end(&mut said))
        .await
        .expect("it was closed")
        .ok();
    // With the default time-outs: the short ones above would close a connection that is silent for a moment.
    let daemon = Daemon::start().await;
    let mut many = TcpStream::connect(daemon.server.addr()).await.unwrap();
    let headers: String = (0..100).map(|n| format!("x-{n}: 1\r\n")).collect();
    many.write_all(format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes())
        .await
        .unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, many.read_to_end(&mut said))
        .await
        .expect("it was closed")
        .ok();
    assert!(said.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn slow_body_is_408() {
    let daemon = Daemon::with(Settings {
        body_timeout: Duration::from_millis(50),
        ..Settings::default()
    })
    .await;
    let mut slow = TcpStream::connect(daemon.server.addr()).await.unwrap();
    let head = "POST /v1/groups/g/members HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut said = [0; 12];
    tokio::time::timeout(PATIENCE, slow.read_exact(&mut said))
        .await
        .expect("an answer")
        .unwrap();
    assert_eq!(&said, b"HTTP/1.1 408");
}
