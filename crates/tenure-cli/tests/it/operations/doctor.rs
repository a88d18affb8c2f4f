//! `tenure doctor` with what can be wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;
use tenure_testkit::consul::Agent;
use tenure_testkit::postgres;

use crate::support::{Daemon, Ran, run, tenure};

fn doctor(args: &[&str]) -> Ran {
    let mut command = tenure();
    command.args(["doctor", "--json"]).args(args);
    run(command)
}

/// Severity, detail and advice of a check.
#[track_caller]
fn of(ran: &Ran, check: &str) -> (String, String) {
    let told: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    let mut found = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["check"] == check);
    let found = found.next().unwrap_or_else(|| panic!("no {check}: {told}"));
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("severity"), format!("{}; {}", text("detail"), text("advice")))
}

/// A server with fixed answers, until the end of the test.
fn answering(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if socket.read_exact(&mut byte).is_err() {
                    break;
                }
                request.extend(byte);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = answer(path);
            let kind = if status < 400 {
                "application/json"
            } else {
                "application/problem+json"
            };
            let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n");
            // The client may have disconnected.
            write!(socket, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok();
        }
    });
    url
}

#[test]
fn healthy_daemon_has_only_ok_findings() {
    let daemon = Daemon::start(&[]);
    let data = daemon.process.dir().join("tenure-data");
    let ran = doctor(&["--store", &daemon.url(), "--data-dir", data.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    for check in [
        "reach",
        "offset",
        "timing",
        "version",
        "sweeps",
        "data directory",
        "integrity",
        "ledger integrity",
    ] {
        assert_eq!(of(&ran, check).0, "ok", "{check}: {}", ran.out);
    }
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    let mut checks: Vec<_> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["check"].to_string())
        .collect();
    let count = checks.len();
    checks.sort_unstable();
    checks.dedup();
    assert_eq!(checks.len(), count, "two findings have one name: {}", ran.out);
}

#[test]
fn a_daemon_of_another_version_is_a_warning() {
    let url = answering(|path| {
        let body = match path {
            "/v1/now" => r#"{"now": "2026-01-01T00:00:00Z"}"#,
            "/v1/doctor" => r#"{"findings": []}"#,
            _ => {
                r#"{"version": "99.1.0", "uptime_ms": 1, "store": {"place": "x", "up": true}, "loops": [], "groups": [],
                    "groups_total": 0, "streams": 0, "requests": 0, "what_a_later_version_tells": {"a": [1]}}"#
            }
        };
        (200, body.to_owned())
    });
    let ran = doctor(&["--store", &url]);
    let (severity, detail) = of(&ran, "version");
    assert_eq!(severity, "warning");
    assert!(
        detail.contains("the daemon is 99.1.0") && detail.contains("docs/upgrades.md"),
        "{detail}"
    );
}

#[test]
fn a_token_that_does_not_do_is_named() {
    let url = answering(|_| {
        let problem =
            r#"{"type": "about:blank", "title": "T", "status": 403, "code": "forbidden", "detail": "no read"}"#;
        (403, problem.to_owned())
    });
    let ran = doctor(&["--store", &url]);
    let (severity, detail) = of(&ran, "permission");
    assert_eq!((severity.as_str(), ran.code), ("error", Some(1)));
    assert!(
        detail.contains("no read") && detail.contains("--token-file"),
        "{detail}"
    );
}

#[test]
fn a_ledger_that_takes_no_writes_is_an_error() {
    let Some(server) = postgres::Server::start() else {
        return;
    };
    let store = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", store.path().join("tenure.db").display());
    let look = || doctor(&["--store", &store, "--ledger", &server.url()]);
    assert_eq!(of(&look(), "ledger role").0, "ok");
    server
        .sql("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
        .unwrap();
    let ran = look();
    let (severity, detail) = of(&ran, "ledger");
    assert_eq!((severity.as_str(), ran.code), ("error", Some(1)));
    assert!(detail.contains("read-only"), "{detail}");
}

#[test]
fn an_agent_of_consul_is_looked_at_when_asked_for() {
    let daemon = Daemon::start(&[]);
    let closed = tenure_testkit::port::Port::reserve();
    let ran = doctor(&["--store", &daemon.url(), "--consul", &closed.addr().to_string()]);
    assert_eq!((of(&ran, "consul").0.as_str(), ran.code), ("error", Some(1)));
    let Some(agent) = Agent::start() else { return };
    let ran = doctor(&["--store", &daemon.url(), "--consul", &agent.addr().to_string()]);
    let (severity, detail) = of(&ran, "consul");
    assert_eq!(severity, "ok");
    assert!(detail.contains("Consul 1."), "{detail}");
}
