//! A daemon without tokens against web pages of other origins in a browser on its machine.

use tenure_core::clock::SystemClock;
use tenure_core::memory::MemoryStore;
use tenure_core::store::StoreOptions;
use tenure_server::auth::Scope;
use tenure_server::{Parts, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::Daemon;
use crate::token_server::Tokens;

const JOIN: (&str, &str) = ("POST /v1/groups/g/members", r#"{"member":"a"}"#);

/// Sends exactly these headers; the status, and the whole answer.
async fn send(server: &Server, request: &str, headers: &str, body: &str) -> (u16, String) {
    let address = ([127, 0, 0, 1], server.addr().port());
    let mut socket = TcpStream::connect(std::net::SocketAddr::from(address)).await.unwrap();
    let kind = if body.is_empty() {
        ""
    } else {
        "Content-Type: application/json\r\n"
    };
    let version = if headers.contains("Host") { "1.1" } else { "1.0" };
    let length = body.len();
    let head =
        format!("{request} HTTP/{version}\r\nConnection: close\r\n{headers}{kind}Content-Length: {length}\r\n\r\n");
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[tokio::test]
async fn a_name_that_was_made_to_lead_here_is_refused() {
    let daemon = Daemon::start().await;
    for host in [
        "localhost",
        "LocalHost:7717",
        "localhost.:7717",
        "tenure.localhost:1",
        "127.0.0.1:7717",
        "[::1]:7717",
        "192.0.2.7",
    ] {
        let (status, answer) = send(&daemon.server, "GET /v1/groups", &format!("Host: {host}\r\n"), "").await;
        assert_eq!(status, 200, "{host}: {answer}");
    }
    assert_eq!(
        send(&daemon.server, "GET /livez", "", "").await.0,
        200,
        "HTTP/1.0 names none"
    );
    for host in [
        "evil.example",
        "evil.example:7717",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "[::1].evil.example",
        "[::1",
        "::1",
        "localhost:port",
        "127.1",
        "",
    ] {
        for request in ["GET /v1/groups", "GET /v1/status", "GET /", "GET /nowhere"] {
            let (status, answer) = send(&daemon.server, request, &format!("Host: {host}\r\n"), "").await;
            assert_eq!(status, 421, "{host}: {answer}");
            assert!(answer.contains("application/problem+json") && answer.contains("\"code\":\"wrong_host\""));
            assert!(answer.contains(host), "{answer}");
            assert!(answer.contains("localhost") && answer.contains("--tokens"), "{answer}");
        }
    }
    let twice = "Host: localhost\r\nHost: evil.example\r\n";
    assert_ne!(send(&daemon.server, "GET /v1/groups", twice, "").await.0, 200);
    let whole = "GET http://evil.example/v1/groups";
    assert_eq!(send(&daemon.server, whole, "Host: localhost\r\n", "").await.0, 421);
    let metrics = daemon.get("/metrics").await.text;
    assert!(
        metrics.contains("tenure_http_refused_total{why=\"wrong_host\"}"),
        "{metrics}"
    );
}

#[tokio::test]
async fn nothing_is_changed_for_a_page_from_elsewhere() {
    let daemon = Daemon::start().await;
    let (join, body) = JOIN;
    let sweep = "POST /v1/groups/g/sweep";
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "https://127.0.0.1",
        "localhost:7717",
        "http://localhost:7717.evil.example",
        "",
    ] {
        let headers = format!("Host: localhost:7717\r\nOrigin: {origin}\r\n");
        for (request, body) in [
            (join, body),
            (sweep, ""),
            ("DELETE /v1/groups/g/tenures/a@1?expel=true", ""),
        ] {
            let (status, answer) = send(&daemon.server, request, &headers, body).await;
            assert_eq!(status, 403, "{request} {origin}: {answer}");
            assert!(
                answer.contains("\"code\":\"wrong_origin\"") && answer.contains("--tokens"),
                "{answer}"
            );
            assert!(answer.contains(origin), "{answer}");
        }
        // A read is harmless: the browser withholds the answer from the page.
        let (status, answer) = send(&daemon.server, "GET /v1/groups", &headers, "").await;
        assert_eq!(status, 200, "{answer}");
        assert!(!answer.contains("access-control"), "{answer}");
    }
    assert_eq!(daemon.get("/v1/groups").await.json()["groups"], serde_json::json!([]));
    let own = "Host: localhost:7717\r\nOrigin: http://localhost:7717\r\n";
    assert_eq!(send(&daemon.server, join, own, body).await.0, 201);
    assert_eq!(send(&daemon.server, sweep, own, "").await.0, 200);
    assert_eq!(send(&daemon.server, sweep, "Host: localhost\r\n", "").await.0, 200);
    let one = "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n";
    assert_eq!(send(&daemon.server, sweep, one, "").await.0, 403);
}

#[tokio::test]
async fn host_names_are_served_beyond_loopback_and_with_tokens() {
    let clock = SystemClock::shared();
    let parts = Parts::new(MemoryStore::new(StoreOptions::default(), clock.clone()), clock);
    let settings = Settings {
        insecure_listen: true,
        ..Settings::default()
    };
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let open = Server::start(listener, parts, settings, std::future::pending()).unwrap();
    let named = "Host: tenure:7717\r\n";
    assert_eq!(send(&open, "GET /readyz", named, "").await.0, 200);
    let proxied = "Host: tenure:7717\r\nOrigin: https://tenure.example\r\n";
    assert_eq!(send(&open, JOIN.0, proxied, JOIN.1).await.0, 201);

    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read, Scope::Beat], &[], &[]);
    let asking = tokens.serve().await;
    let shown = format!("{proxied}Authorization: Bearer {}\r\n", one.text());
    assert_eq!(send(&asking.server, JOIN.0, &shown, JOIN.1).await.0, 201);
    assert_eq!(send(&asking.server, JOIN.0, proxied, JOIN.1).await.0, 401);
}
