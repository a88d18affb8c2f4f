//! Traces by OTLP, as a collector receives them from the built binary.

mod client;
mod collector;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tenure_testkit::http::{get, request_with};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use self::collector::{Collector, Manners, attribute};
use crate::security::tokens::Tokens;
use crate::support::{Daemon, SOON, said};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A daemon on a store in memory that sends traces there.
fn traced(endpoint: &str, set: impl FnOnce(&mut Command)) -> Daemon {
    traced_on("memory:", endpoint, set)
}

/// A daemon on this store, without variables of the machine's environment.
fn traced_on(store: &str, endpoint: &str, set: impl FnOnce(&mut Command)) -> Daemon {
    Daemon::with(|command| {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("OTEL_") {
                command.env_remove(name);
            }
        }
        command.args(["--store", store, "--otlp-endpoint", endpoint]);
        set(command);
    })
}

/// Sends a request on behalf of a trace.
#[track_caller]
fn ask(daemon: &Daemon, traceparent: &str, method: &str, path: &str, body: &str) -> String {
    let headers = [("traceparent", traceparent), ("content-type", "application/json")];
    let (status, answer) = request_with(daemon.addr, method, path, &headers, body).unwrap();
    assert!(status < 300, "{status} {answer}");
    answer
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_in(span: &Span, trace: &str) -> bool {
    hex(&span.trace_id) == trace
}

fn counted(daemon: &Daemon, outcome: &str) -> u64 {
    let (_, metrics) = get(daemon.addr, "/metrics").unwrap();
    let start = format!("tenure_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
    found.unwrap_or_else(|| panic!("no count of spans {outcome}: {metrics}"))
}

#[test]
fn request_and_its_store_call_join_the_callers_trace() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let body = r#"{"member":"m1"}"#;
    ask(&daemon, &traceparent, "POST", "/v1/groups/ingest/members", body);

    let name = "POST /v1/groups/{g}/members";
    let request = collector.span("the request", |span| span.name == name && is_in(span, TRACE));
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert_eq!(request.kind, SpanKind::Server as i32);
    let of_request = |key| attribute(&request.attributes, key).unwrap_or_default();
    assert_eq!(of_request("http.request.method"), "POST");
    assert_eq!(of_request("http.route"), "/v1/groups/{g}/members");
    assert_eq!(of_request("http.response.status_code"), "201");
    assert_eq!(of_request("tenure.group"), "ingest");

    let call = collector.span("its call", |span| span.name == "Join" && is_in(span, TRACE));
    assert_eq!(call.parent_span_id, request.span_id);
    assert_eq!(call.kind, SpanKind::Client as i32);
    let of_call = |key| attribute(&call.attributes, key).unwrap_or_default();
    assert_eq!(of_call("tenure.group"), "ingest");
    assert_eq!(of_call("tenure.store"), "memory:");
    assert!(request.start_time_unix_nano <= call.start_time_unix_nano);
    assert!(call.end_time_unix_nano <= request.end_time_unix_nano);

    let resource = collector.requests()[0].resource_spans[0].resource.clone().unwrap();
    assert_eq!(
        attribute(&resource.attributes, "service.name").as_deref(),
        Some("tenure")
    );
    let heads = collector.heads();
    assert!(heads.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{heads}");
}

#[test]
fn failed_store_call_is_marked() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let headers = [("content-type", "application/json")];
    let path = "/v1/groups/g/registries/r/claims";
    let body = r#"{"tenure":"m9@7","keys":["k1"]}"#;
    let (status, answer) = request_with(daemon.addr, "POST", path, &headers, body).unwrap();
    assert_eq!(status, 410, "{answer}");
    let call = collector.span("the call", |span| span.name == "Claim");
    let error = attribute(&call.attributes, "error.type");
    assert_eq!(error.as_deref(), Some("tenure_ended"));
    let outcome = attribute(&call.attributes, "tenure.outcome");
    assert_eq!(outcome.as_deref(), Some("unchanged"));
    assert_eq!(attribute(&call.attributes, "tenure.items").as_deref(), Some("1"));
    // The request was the client's mistake, so its span is no error of the daemon.
    let request = collector.span("the request", |span| span.span_id == call.parent_span_id);
    assert!(request.status.unwrap_or_default().code != 2);
}

#[test]
fn pass_of_the_janitor_is_a_trace() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let tenure = daemon.join("ingest", "m1", 1_000);
    daemon.claim("ingest", "devices", &tenure, &["d1".to_owned()]);
    let release = collector.span("the release", |span| span.name == "Release");
    let pass = collector.span("its pass", |span| span.span_id == release.parent_span_id);
    assert_eq!(pass.name, "sweep janitor");
    assert_eq!(hex(&pass.parent_span_id), "");
    assert_eq!(pass.trace_id, release.trace_id);
    assert_eq!(attribute(&pass.attributes, "tenure.group").as_deref(), Some("ingest"));
    let ended = collector.span("the end", |span| span.name == "EndLapsed");
    let pass = collector.span("its pass", |span| span.span_id == ended.parent_span_id);
    assert_eq!(pass.name, "sweep janitor");
}

#[test]
fn beats_and_probes_begin_no_trace_of_their_own() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let beat = format!("/v1/groups/g/tenures/{}/beat", daemon.join("g", "m1", 60_000));
    for path in ["/livez", "/readyz", "/metrics"] {
        // A daemon that has just started is not ready yet.
        wait::until(path, SOON, || get(daemon.addr, path).unwrap().0 == 200);
    }
    assert_eq!(daemon.http("PUT", &beat, "").0, 200);
    let headers = [("traceparent", "00-nonsense")];
    assert_eq!(request_with(daemon.addr, "PUT", &beat, &headers, "").unwrap().0, 200);
    // The beat of a traced caller, which comes after all of these.
    ask(&daemon, &format!("00-{TRACE}-{PARENT}-01"), "PUT", &beat, "");
    let name = "PUT /v1/groups/{g}/tenures/{t}/beat";
    let request = collector.span("the beat", |span| span.name == name);
    let call = collector.span("its call", |span| span.name == "Beat");
    assert_eq!(call.parent_span_id, request.span_id);
    let spans = collector.spans();
    for span in spans.iter().filter(|span| span.name == name || span.name == "Beat") {
        assert!(is_in(span, TRACE), "{span:?}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert!(!spans.iter().any(|span| span.name.ends_with(path)), "{path}");
    }
}

#[test]
fn callers_and_the_share_decide_what_is_recorded() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |command| {
        command.args(["--otlp-sample", "0"]);
    });
    let unsampled = "11111111111111111111111111111111";
    assert_eq!(get(daemon.addr, "/v1/groups").unwrap().0, 200);
    ask(&daemon, &format!("00-{unsampled}-{PARENT}-00"), "GET", "/v1/groups", "");
    ask(&daemon, &format!("00-{TRACE}-{PARENT}-01"), "GET", "/v1/groups", "");
    collector.span("the request", |span| span.name == "GET /v1/groups");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| is_in(span, TRACE)), "{spans:?}");
}

#[test]
fn forged_traceparent_begins_a_new_trace() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let long = format!("{TRACE}{}", "0".repeat(4_000));
    let state: Vec<_> = (0..20).map(|n| format!("k{n}={}", "y".repeat(200))).collect();
    let state = state.join(",");
    let zeroes = "0".repeat(32);
    for forged in [
        TRACE,
        &long,
        "00-xyz-b7ad6b7169203331-01",
        &format!("00-{zeroes}-{PARENT}-01"),
        "",
    ] {
        ask(&daemon, forged, "GET", "/v1/groups/forged", "");
    }
    let headers = [
        ("traceparent", &*format!("00-{TRACE}-{PARENT}-01")),
        ("tracestate", &state),
    ];
    request_with(daemon.addr, "GET", "/v1/groups/last", &headers, "").unwrap();
    let last = collector.span("the last", |span| is_in(span, TRACE));
    assert_eq!(last.trace_state, "", "a long state is left out");
    let is_forged = |span: &&Span| attribute(&span.attributes, "tenure.group").as_deref() == Some("forged");
    let spans = collector.spans();
    let requests: Vec<_> = spans
        .iter()
        .filter(is_forged)
        .filter(|span| span.name.starts_with("GET"))
        .collect();
    assert_eq!(requests.len(), 5, "{spans:?}");
    assert!(requests.iter().all(|span| span.parent_span_id.is_empty()));
}

#[test]
fn refused_request_is_not_traced() {
    let collector = Collector::start(Manners::Takes);
    let tokens = Tokens::none();
    let reader = tokens.new_token("reader", &["--scope", "read"]);
    let token = std::fs::read_to_string(reader).unwrap();
    let daemon = traced(&collector.url(), |command| {
        command.arg("--tokens").arg(tokens.file());
    });
    said(&daemon.process, "serving");
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", traceparent.as_str())];
    assert_eq!(
        request_with(daemon.addr, "GET", "/v1/groups/a", &headers, "")
            .unwrap()
            .0,
        401
    );
    let shown = format!("Bearer {}", token.trim());
    let headers = [("traceparent", traceparent.as_str()), ("authorization", &shown)];
    request_with(daemon.addr, "GET", "/v1/groups/b", &headers, "").unwrap();
    let request = collector.span("the request", |span| span.name.starts_with("GET") && is_in(span, TRACE));
    assert_eq!(attribute(&request.attributes, "tenure.group").as_deref(), Some("b"));
}

#[test]
fn request_of_a_client_that_left_is_cancelled() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    let (holder, waiter) = (daemon.join("g", "m1", 60_000), daemon.join("g", "m2", 60_000));
    daemon.granted("g", "l", &[&holder, &waiter], 60_000);
    let body = format!(r#"{{"tenure":"{waiter}","wait_ms":60000}}"#);
    let mut stream = TcpStream::connect(daemon.addr).unwrap();
    let head = format!(
        "POST /v1/groups/g/leases/l/acquire HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n",
        daemon.addr,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    collector.span("its place in the queue", |span| {
        span.name == "Acquire" && is_in(span, TRACE)
    });
    drop(stream);
    let request = collector.span("the request", |span| {
        span.name.starts_with("POST") && is_in(span, TRACE)
    });
    assert_eq!(
        attribute(&request.attributes, "error.type").as_deref(),
        Some("cancelled")
    );
    assert_eq!(attribute(&request.attributes, "http.response.status_code"), None);
}

#[test]
fn collector_that_is_away_changes_nothing() {
    // Nothing listens there any more.
    let endpoint = Collector::start(Manners::Takes).url().replace("127.0.0.1", "127.0.0.2");
    let refusing = Collector::start(Manners::Refuses);
    for endpoint in [endpoint, refusing.url()] {
        let daemon = traced(&endpoint, |_| {});
        let tenure = daemon.join("g", "m1", 60_000);
        daemon.claim("g", "r", &tenure, &["k".to_owned()]);
        wait::until("the loss is counted", SOON, || counted(&daemon, "failed") > 0);
        assert_eq!(counted(&daemon, "exported"), 0);
        for _ in 0..20 {
            daemon.beat("g", &[&tenure], 60_000);
        }
        assert_eq!(get(daemon.addr, "/readyz").unwrap().0, 200);
        assert!(daemon.process.terminate(SOON).unwrap().success());
        let log = daemon.process.log();
        assert_eq!(log.matches("the collector does not take traces").count(), 1, "{log}");
    }
}

#[test]
fn hanging_collector_delays_neither_requests_nor_the_end() {
    let collector = Collector::start(Manners::Hangs);
    let daemon = traced(&collector.url(), |command| {
        command.args(["--drain", "300ms"]);
    });
    wait::until("a batch hangs, and the queue is full", SOON, || {
        for _ in 0..100 {
            assert_eq!(daemon.http("GET", "/v1/groups", "").0, 200);
        }
        counted(&daemon, "dropped") > 0
    });
    assert!(!collector.requests().is_empty());
    assert!(daemon.process.terminate(SOON).unwrap().success());
    let log = daemon.process.log();
    assert!(log.contains("the last traces were not sent"), "{log}");
}

#[test]
fn last_spans_are_sent_at_the_end() {
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |_| {});
    ask(&daemon, &format!("00-{TRACE}-{PARENT}-01"), "GET", "/v1/groups", "");
    assert!(daemon.process.terminate(SOON).unwrap().success());
    let spans = collector.spans();
    assert!(spans.iter().any(|span| is_in(span, TRACE)), "{spans:?}");
}

#[test]
fn traces_contain_no_secrets() {
    let Some(valkey) = Server::start(Flavour::Valkey) else {
        return;
    };
    let password = "hunter2-of-the-store";
    let user = [
        "ACL",
        "SETUSER",
        "tenure",
        "on",
        &format!(">{password}"),
        "~*",
        "&*",
        "+@all",
    ];
    valkey.cli(&user).unwrap();
    let tokens = Tokens::none();
    let all = tokens.new_token("all", &["--scope", "read,write,operate,beat"]);
    let token = std::fs::read_to_string(all).unwrap().trim().to_owned();
    let collector = Collector::start(Manners::Takes);
    let key_of_collector = "key-of-the-collector";
    let store = format!("valkey://tenure:{password}@{}", valkey.addr());
    let daemon = traced_on(&store, &collector.url(), |command| {
        command.args(["--log", "trace", "--tokens"]).arg(tokens.file());
        command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("x-api-key={key_of_collector}"));
        command.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test");
    });
    said(&daemon.process, "serving");
    let shown = format!("Bearer {token}");
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [
        ("traceparent", traceparent.as_str()),
        ("authorization", &shown),
        ("content-type", "application/json"),
    ];
    let ask = |method: &str, path: &str, body: &str| {
        let answer = request_with(daemon.addr, method, path, &headers, body).unwrap();
        serde_json::from_str::<serde_json::Value>(&answer.1).unwrap_or_default()
    };
    let body = r#"{"member":"m1","labels":{"zone":"secret-label"}}"#;
    let joined = ask("POST", "/v1/groups/g/members", body);
    let tenure = joined["tenure"].as_str().unwrap_or_else(|| panic!("{joined}"));
    let claim = format!(r#"{{"tenure":"{tenure}","keys":["secret-key"]}}"#);
    ask("POST", "/v1/groups/g/registries/r/claims", &claim);
    let attach = format!(
        r#"{{"tenure":"{tenure}","connection":"c1","data":{{"user":"secret-data"}},"aliases":["secret-alias"]}}"#
    );
    ask("PUT", "/v1/groups/g/sessions/secret-session", &attach);
    ask("GET", "/v1/groups/g/sessions/secret-session?x=secret-query", "");
    ask("GET", "/v1/groups/end-of-the-test", "");
    collector.span("the last", |span| {
        attribute(&span.attributes, "tenure.group").as_deref() == Some("end-of-the-test")
            && span.name.starts_with("GET")
    });
    let call = collector.span("a call", |span| span.name == "Join");
    let store = attribute(&call.attributes, "tenure.store").unwrap();
    assert!(store.contains(&valkey.addr().to_string()), "{store}");
    assert!(collector.heads().contains(key_of_collector), "{}", collector.heads());
    daemon.process.terminate(SOON).unwrap();
    let (sent, log) = (
        String::from_utf8_lossy(&collector.bytes()).into_owned(),
        daemon.process.log(),
    );
    assert!(!sent.contains("secret-"), "{sent}");
    for secret in [password, &token[4..], key_of_collector] {
        assert!(!sent.contains(secret), "{secret} was sent: {sent}");
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}
