//! The log of what operators do, when something comes between them and their answer.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once, PoisonError};

use serde_json::json;
use tenure_core::call::Verb;
use tenure_core::clock::SystemClock;
use tenure_server::Settings;
use tenure_testkit::wait::until_async;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Daemon, PATIENCE};

type Line = BTreeMap<&'static str, String>;

/// The lines of all tests of this binary; each has paths of its own.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

struct Kept;

struct Fields(Line);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tenure::audit"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The lines of a group: what was asked for, how it came out, and the status.
fn lines(group: &str) -> Vec<(String, String, String)> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |line: &Line, name: &str| line.get(name).cloned().unwrap_or_default();
    let ours = lines.iter().filter(|line| line["path"].contains(&format!("/{group}/")));
    ours.map(|line| (of(line, "details"), of(line, "outcome"), of(line, "status")))
        .collect()
}

fn line(details: &str, outcome: &str, status: &str) -> (String, String, String) {
    (details.to_owned(), outcome.to_owned(), status.to_owned())
}

fn keep_lines() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| tracing::subscriber::set_global_default(Kept).unwrap());
}

async fn moody(settings: Settings) -> (Daemon, Arc<Faulty>) {
    keep_lines();
    let clock = SystemClock::shared();
    let store = Faulty::new(clock.clone());
    (Daemon::over(store.clone(), clock, settings).await, store)
}

/// Sends a request, and nothing more.
async fn begin(daemon: &Daemon, request: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(daemon.server.addr()).await.unwrap();
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn disconnect_during_an_operation_is_audited() {
    let (daemon, store) = moody(Settings::default()).await;
    store.be(Mood::WaitsAt(Verb::Tick));
    let forced = json!({"force": true}).to_string();
    let sweep = begin(&daemon, "POST /v1/groups/left-a-sweep/sweep", &forced).await;
    store.someone_waits().await;
    drop(sweep);
    let gone = || async { !lines("left-a-sweep").is_empty() };
    until_async("the line of the sweep", PATIENCE, gone).await;
    assert_eq!(lines("left-a-sweep"), [line("force", "unknown (caller left)", "")]);

    store.be(Mood::WaitsAt(Verb::End));
    let expel = begin(&daemon, "DELETE /v1/groups/left-an-end/tenures/a@1?expel=true", "").await;
    store.someone_waits().await;
    drop(expel);
    let gone = || async { !lines("left-an-end").is_empty() };
    until_async("the line of the expulsion", PATIENCE, gone).await;
    assert_eq!(lines("left-an-end"), [line("expel", "unknown (caller left)", "")]);

    // A leave is not an operation.
    let leave = begin(&daemon, "DELETE /v1/groups/left-alone/tenures/a@1?expel=false", "").await;
    store.someone_waits().await;
    drop(leave);
    until_async("it is gone", PATIENCE, || async {
        daemon.get("/v1/status").await.json()["requests"] == 0
    })
    .await;
    assert_eq!(lines("left-alone"), []);
}

#[tokio::test]
async fn cut_at_shutdown_is_audited_as_such() {
    let settings = Settings {
        drain_timeout: std::time::Duration::from_millis(50),
        ..Settings::default()
    };
    let (daemon, store) = moody(settings).await;
    store.be(Mood::WaitsAt(Verb::Tick));
    let _sweep = begin(&daemon, "POST /v1/groups/cut/sweep", "").await;
    store.someone_waits().await;
    daemon.shut_down().await;
    assert_eq!(lines("cut"), [line("", "unknown (cut while shutting down)", "")]);
}

#[tokio::test]
async fn panicked_or_refused_expulsion_is_audited() {
    let settings = Settings {
        max_requests: 1,
        ..Settings::default()
    };
    keep_lines();
    let (daemon, store, _) = Daemon::still(settings).await;
    store.be(Mood::Panics);
    let answer = daemon.delete("/v1/groups/burst/tenures/a@1?expel=true").await;
    assert_eq!(answer.status, 500);
    assert_eq!(lines("burst"), [line("expel", "failed", "500")]);

    store.be(Mood::WaitsAt(Verb::Members));
    let _look = begin(&daemon, "GET /v1/groups/crowd/members", "").await;
    store.someone_waits().await;
    let answer = daemon.delete("/v1/groups/crowd/tenures/a@1?expel=true").await;
    assert_eq!(answer.code(), "overloaded");
    assert_eq!(lines("crowd"), [line("expel", "failed", "503")]);
}
