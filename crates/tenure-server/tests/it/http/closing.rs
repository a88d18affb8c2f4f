//! An answer after which the daemon closes the connection says so: `Connection: close`. A client that pools connections
//! would otherwise send its next request into a closed one.

use std::time::Duration;

use tenure_server::Settings;

use crate::common::raw::RawConnection;
use crate::common::{Daemon, PATIENCE, slow};

const JOIN: &str = "POST /v1/groups/g/members HTTP/1.1\r\nContent-Type: application/json";
const FROM_ELSEWHERE: &str = "POST /v1/groups/g/members HTTP/1.1\r\nOrigin: http://elsewhere.example";

/// The answer has this status and says that the connection closes; then it does.
#[track_caller]
fn says_close(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

async fn closes(connection: &mut RawConnection, status: u16) {
    let answer = connection.answer().await.expect("an answer");
    says_close(&answer, status);
    assert!(connection.is_closed().await);
}

#[tokio::test]
async fn unread_body_of_a_refused_request_closes() {
    let daemon = Daemon::start().await;
    for (headers, body) in [
        ("Content-Length: 1000000", "{"),
        ("Content-Length: 2\r\nExpect: 100-continue", ""),
    ] {
        let mut connection = RawConnection::open(&daemon).await;
        connection.send(&format!("{FROM_ELSEWHERE}\r\n{headers}"), body).await;
        closes(&mut connection, 403).await;
    }
}

#[tokio::test]
async fn short_body_of_a_refused_request_keeps_the_connection() {
    let daemon = Daemon::start().await;
    let mut connection = RawConnection::open(&daemon).await;
    for _ in 0..3 {
        let request = format!("{FROM_ELSEWHERE}\r\nContent-Length: 2");
        let answer = connection.ask(&request, "{}").await.expect("still open");
        assert!(
            answer.starts_with("http/1.1 403") && !answer.contains("connection: close"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn body_over_the_limit_closes() {
    let daemon = Daemon::with(Settings {
        body_limit: 100,
        ..Settings::default()
    })
    .await;
    for length in ["Content-Length: 101", "Transfer-Encoding: chunked"] {
        let mut connection = RawConnection::open(&daemon).await;
        let body = format!("{:x}\r\n{}", 1_000, "x".repeat(900));
        connection.send(&format!("{JOIN}\r\n{length}"), &body).await;
        closes(&mut connection, 413).await;
    }
}

#[tokio::test]
async fn body_that_times_out_closes() {
    let daemon = Daemon::with(Settings {
        body_timeout: Duration::from_millis(50),
        ..Settings::default()
    })
    .await;
    let mut connection = RawConnection::open(&daemon).await;
    connection.send(&format!("{JOIN}\r\nContent-Length: 100"), "{").await;
    closes(&mut connection, 408).await;
}

#[tokio::test]
async fn unread_body_of_a_probe_closes() {
    let daemon = Daemon::start().await;
    for (path, status) in [("/livez", 200), ("/nothing", 404)] {
        let mut connection = RawConnection::open(&daemon).await;
        connection
            .send(&format!("GET {path} HTTP/1.1\r\nContent-Length: 1000000"), "{")
            .await;
        closes(&mut connection, status).await;
    }
}

#[tokio::test]
async fn head_that_cannot_be_read_closes() {
    let daemon = Daemon::start().await;
    let many: String = (0..100).map(|n| format!("\r\nX-{n}: 1")).collect();
    for (head, status) in [
        ("GET /livez HTTP/1.1\r\nno header".to_owned(), 400),
        (format!("GET /livez HTTP/1.1{many}"), 431),
    ] {
        let mut connection = RawConnection::open(&daemon).await;
        connection.send(&head, "").await;
        closes(&mut connection, status).await;
    }
}

#[tokio::test]
async fn request_that_finishes_during_shutdown_closes() {
    let mut daemon = Daemon::with(Settings {
        drain_timeout: PATIENCE * 3,
        ..slow()
    })
    .await;
    let mut connection = RawConnection::open(&daemon).await;
    let body = r#"{"member": "late"}"#;
    connection
        .send(&format!("{JOIN}\r\nContent-Length: {}", body.len()), "")
        .await;
    daemon.until_arriving(1).await;
    daemon.stop();
    connection.send_body(body).await;
    closes(&mut connection, 201).await;
}

/// A stream ends when the daemon shuts down, and its head was sent long before.
#[tokio::test]
async fn event_stream_says_that_its_end_closes() {
    let daemon = Daemon::start().await;
    let mut connection = RawConnection::open(&daemon).await;
    let stream = "GET /v1/groups/g/events HTTP/1.1\r\nAccept: text/event-stream";
    let answer = connection.ask(stream, "").await.expect("a stream");
    says_close(&answer, 200);
}
