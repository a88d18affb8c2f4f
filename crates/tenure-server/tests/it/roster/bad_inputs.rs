//! Whatever is wrong with a request about a roster: a stable code, a sentence that names what is wrong, and nothing changed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::common::Answer;
use crate::roster::server::RosterServer;

type Case = (&'static str, &'static str, Value, u16, &'static str, &'static str);

/// It can be read and breaks a rule.
fn refused(method: &'static str, path: &'static str, body: Value, must_say: &'static str) -> Case {
    (method, path, body, 422, "invalid", must_say)
}

fn get(path: &'static str, must_say: &'static str) -> Case {
    refused("GET", path, Value::Null, must_say)
}

const A: &str = "/v1/rosters/r/providers/a";
const E: &str = "/v1/rosters/r/engagements";
const RESERVE: &str = "/v1/rosters/r/reserve";

fn cases() -> Vec<Case> {
    let mut all = reading();
    all.extend(providers());
    all.extend(engagements_and_settings());
    all
}

fn reading() -> Vec<Case> {
    vec![
        get("/v1/rosters?limit=0", "out of range: use 1 to 1000"),
        get("/v1/rosters?after=a%20b", "invalid cursor"),
        get("/v1/rosters/a%20b", "' ' at position 2"),
        get("/v1/rosters/r?x=1", "no query"),
        get("/v1/rosters/r/available?limit=0", "out of range: use 1 to 1000"),
        get("/v1/rosters/r/available?limit=1001", "out of range: use 1 to 1000"),
        get("/v1/rosters/r/available?limit=x", "limit"),
        get("/v1/rosters/r/available?before=x", "unknown field `before`"),
        get("/v1/rosters/r/availability?x=1", "no query"),
        get("/v1/rosters/r/stats?x=1", "no query"),
        get(
            "/v1/rosters/r/providers?state=gone",
            "there are online, available, busy, offline, deactivated",
        ),
        get("/v1/rosters/r/providers?limit=0", "out of range: use 1 to 1000"),
        get("/v1/rosters/r/providers?alive=true", "unknown field `alive`"),
        get("/v1/rosters/r/providers/a%2Fb", "'/' at position 2"),
        get("/v1/rosters/r/log?provider=a%20b", "' ' at position 2"),
        get("/v1/rosters/r/log?limit=1001", "out of range: use 1 to 1000"),
    ]
}

fn providers() -> Vec<Case> {
    let long = "x".repeat(257);
    vec![
        refused("PUT", A, json!({"capacity": -1}), "capacity: invalid value"),
        refused("PUT", A, json!({"capacity": 1.5}), "capacity: invalid type"),
        refused("PUT", A, json!({"capacity": 100_001}), "above the largest, 100000"),
        refused("PUT", A, json!({"capacty": 1}), "unknown field `capacty`"),
        refused("PUT", A, json!({"display_name": 5}), "display_name: invalid type"),
        refused("PUT", A, json!({"display_name": "a\nb"}), "control character"),
        refused("PUT", A, json!({ "display_name": long }), "257 bytes; at most 256"),
        refused("PUT", A, json!([]), "object"),
        refused(
            "POST",
            "/v1/rosters/r/providers/a/online",
            json!({"capacity": 1}),
            "unknown field `capacity`",
        ),
        refused(
            "POST",
            "/v1/rosters/r/providers/a/heartbeat",
            json!({"ttl_ms": 1}),
            "unknown field `ttl_ms`",
        ),
        refused(
            "POST",
            "/v1/rosters/r/providers/a/heartbeat?x=1",
            Value::Null,
            "no query",
        ),
        refused(
            "DELETE",
            "/v1/rosters/r/providers/a?force=true",
            Value::Null,
            "no query",
        ),
    ]
}

fn engagements_and_settings() -> Vec<Case> {
    vec![
        refused("POST", E, json!({"id": "a b"}), "id: the engagement"),
        refused("POST", E, json!({"engagement": "e"}), "unknown field `engagement`"),
        refused("POST", E, json!({"provider": 5}), "provider: invalid type"),
        refused(
            "POST",
            E,
            json!({"status": "done"}),
            "use one of pending, active, ended, expired, cancelled",
        ),
        refused("POST", E, json!({"status": "ended"}), "begins as pending or active"),
        refused("POST", E, json!({"expires_in_ms": 0}), "more than 0"),
        refused("POST", E, json!({"expires_in_ms": "5s"}), "expires_in_ms: invalid type"),
        refused(
            "PATCH",
            "/v1/rosters/r/engagements/e",
            json!({"state": "ended"}),
            "unknown field `state`",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r/engagements/e",
            json!({"expires_in_ms": 0}),
            "more than 0",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r/engagements/a%20b",
            json!({}),
            "' ' at position 2",
        ),
        refused("POST", RESERVE, json!({"id": "e"}), "unknown field `id`"),
        refused(
            "POST",
            RESERVE,
            json!({"status": "ended"}),
            "begins as pending or active",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"stale_after_ms": 999}),
            "out of range: use 1s to 24h",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"stale_after_ms": 86_400_001}),
            "out of range: use 1s to 24h",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"snapshot_ms": 10_001}),
            "use at most 10s",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"default_capacity": 100_001}),
            "default capacity",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"require_heartbeat": "no"}),
            "require_heartbeat: invalid type",
        ),
        refused(
            "PATCH",
            "/v1/rosters/r",
            json!({"grace_ms": 1}),
            "unknown field `grace_ms`",
        ),
        ("POST", A, json!({}), 405, "method_not_allowed", "Allow"),
        ("GET", RESERVE, Value::Null, 405, "method_not_allowed", "Allow"),
        (
            "GET",
            "/v1/rosters/r/providers/a/",
            Value::Null,
            404,
            "no_such_route",
            "openapi.json",
        ),
        (
            "GET",
            "/v1/rosters/r/providers/a/fly",
            Value::Null,
            404,
            "no_such_route",
            "openapi.json",
        ),
    ]
}

#[tokio::test]
async fn a_bad_request_is_refused_by_name_and_changes_nothing() {
    let server = RosterServer::open().await;
    let mut wrong = Vec::new();
    for (method, path, body, status, code, must_say) in cases() {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = server.daemon.client.request(method.clone(), server.daemon.url(path));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = Answer::read(request.send().await.unwrap()).await;
        let got = (answer.status.as_u16(), answer.code());
        if got != (status, code.to_owned()) || !answer.text.contains(must_say) {
            wrong.push(format!(
                "{method} {path} {body}\n  wanted {status} {code} {must_say:?}\n  got {answer:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    for path in ["", "/providers", "/log"] {
        let left = server.daemon.get(&format!("/v1/rosters/r{path}")).await;
        assert_eq!(left.status.as_u16(), 404, "not even a roster: {left:?}");
    }
}

#[tokio::test]
async fn invalid_bodies_and_late_calls_are_refused() {
    let server = RosterServer::open().await;
    for (kind, body, status, code) in [
        ("application/json", "{", 400, "malformed_json"),
        ("text/plain", "{}", 415, "unsupported_media_type"),
    ] {
        let request = server
            .daemon
            .request("PATCH", "/v1/rosters/r")
            .header("content-type", kind);
        let answer = Answer::read(request.body(body).send().await.unwrap()).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code));
    }
    // The server knows the store's time once it has asked for it.
    server.daemon.get("/v1/now").await;
    let put = async |not_after: &str| {
        let request = server.daemon.request("PUT", "/v1/rosters/r/providers/a");
        Answer::read(request.header("tenure-not-after", not_after).send().await.unwrap()).await
    };
    let late = put("2020-01-01T00:00:00Z").await;
    assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "too_late"));
    assert_eq!(put("soon").await.code(), "invalid");
    assert_eq!(server.daemon.get("/v1/rosters/r/providers/a").await.status, 404);
    assert_eq!(put("2120-01-01T00:00:00Z").await.status, 200);
}
