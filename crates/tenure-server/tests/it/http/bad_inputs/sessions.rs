//! Sessions and their connections.

use serde_json::{Map, Value, json};

use super::case::{Case, TENURES, bodies, get, lost, names, raw, refused, too_large, wrong};

const SESSION: &str = "/v1/groups/g/sessions/s";
const CONNECTION: &str = "/v1/groups/g/sessions/s/connections/c";
const ATTACH_MANY: &str = "/v1/groups/g/sessions-attach";
const DETACH_MANY: &str = "/v1/groups/g/sessions-detach";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        let detach = "connections/c?tenure=a@1";
        for (method, path, body) in [
            ("PUT", "", json!({"tenure": "a@1", "connection": "c"})),
            ("GET", "", Value::Null),
            ("PATCH", "", json!({"data": {}})),
            ("DELETE", "", Value::Null),
            ("DELETE", detach, Value::Null),
        ] {
            let of_session = format!("/v1/groups/g/sessions/{name}/{path}");
            let of_group = format!("/v1/groups/{name}/sessions/s/{path}");
            cases.push(refused(
                method,
                of_session.trim_end_matches('/'),
                body.clone(),
                must_say,
            ));
            cases.push(refused(method, of_group.trim_end_matches('/'), body, must_say));
        }
        let connection = format!("{SESSION}/connections/{name}?tenure=a@1");
        cases.push(refused("DELETE", &connection, Value::Null, must_say));
        for listing in ["sessions", "sessions-stats", "sessions-orphans"] {
            cases.push(get(&format!("/v1/groups/{name}/{listing}"), must_say));
        }
        let (attach, detach) = (
            format!("/v1/groups/{name}/sessions-attach"),
            format!("/v1/groups/{name}/sessions-detach"),
        );
        cases.push(refused(
            "POST",
            &attach,
            json!({"tenure": "a@1", "sessions": []}),
            must_say,
        ));
        let none = json!({"tenure": "a@1", "connections": []});
        cases.push(refused("POST", &detach, none, must_say));
    }
    for tenure in TENURES {
        cases.push(refused(
            "DELETE",
            &format!("{CONNECTION}?tenure={tenure}"),
            Value::Null,
            "",
        ));
        let spelt = tenure.replace("%20", " ");
        for (method, path, body) in [
            ("PUT", SESSION, json!({"tenure": spelt, "connection": "c"})),
            ("PATCH", SESSION, json!({"tenure": spelt, "data": {}})),
            ("POST", ATTACH_MANY, json!({"tenure": spelt, "sessions": []})),
            ("POST", DETACH_MANY, json!({"tenure": spelt, "connections": []})),
        ] {
            cases.push(refused(method, path, body, "tenure"));
        }
    }
    for (method, path, factor) in [
        ("PUT", SESSION, 1),
        ("PATCH", SESSION, 1),
        ("POST", ATTACH_MANY, 4),
        ("POST", DETACH_MANY, 4),
    ] {
        cases.extend(bodies(method, path));
        cases.push(too_large(method, path, factor));
    }
    cases.extend(attaches());
    cases.extend(data());
    cases.extend(batches());
    cases.extend(queries());
    cases.extend(routes());
    cases
}

fn attach(more: &Value, must_say: &'static str) -> Case {
    let mut body = json!({"tenure": "a@1", "connection": "c"});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    refused("PUT", SESSION, body, must_say)
}

fn attaches() -> Vec<Case> {
    let put = |body, must_say| refused("PUT", SESSION, body, must_say);
    let too_short = "use 1000 ms to 30 days";
    vec![
        put(json!({}), "missing field `tenure`"),
        put(json!([]), "object"),
        put(json!({"tenure": "a@1"}), "missing field `connection`"),
        put(json!({"connection": "c"}), "missing field `tenure`"),
        attach(&json!({"tenure": 5}), "tenure: invalid type"),
        attach(&json!({"connection": "a/b"}), "connection: the connection"),
        attach(&json!({"connection": null}), "connection: invalid type"),
        attach(&json!({"alias": "a b"}), "alias: the alias"),
        attach(&json!({"alias": 5}), "alias: invalid type"),
        attach(&json!({"alias": ""}), "alias: the alias is empty"),
        attach(&json!({"resume": true}), "unknown field `resume`"),
        attach(&json!({"resume_only": "yes"}), "resume_only: invalid type"),
        attach(&json!({"grace": 5000}), "unknown field `grace`"),
        attach(&json!({"grace_ms": 0}), too_short),
        attach(&json!({"grace_ms": 999}), "the grace of 999 ms is out of range"),
        attach(&json!({"grace_ms": 30 * 86_400_000_u64 + 1}), "30 days"),
        attach(&json!({"grace_ms": u64::MAX}), "30 days"),
        attach(&json!({"grace_ms": -1}), "grace_ms: invalid value"),
        attach(&json!({"grace_ms": 1500.5}), "grace_ms: invalid type"),
        attach(&json!({"grace_ms": "60s"}), "grace_ms: invalid type"),
    ]
}

/// Data that is too much, whichever way it comes.
fn data() -> Vec<Case> {
    let many: Map<_, _> = (0..65).map(|n| (format!("f{n}"), json!(1))).collect();
    // Escaped, a control character takes six bytes.
    let escaped = "\u{1}".repeat(683);
    let mut cases = Vec::new();
    for (data, must_say) in [
        (json!(5), "data: invalid type"),
        (json!(null), "data: invalid type"),
        (json!(["x"]), "data: invalid type"),
        (json!(many), "65 fields of session data; at most 64"),
        (json!({"": 1}), "invalid field name"),
        (json!({"a\nb": 1}), "invalid field name"),
        (json!({"x".repeat(201): 1}), "invalid field name"),
        (
            json!({"ok": 1, "big": "x".repeat(4_095)}),
            r#"the field \"big\" of session data has 4097 bytes of JSON; at most 4096"#,
        ),
        (json!({ "escaped": escaped }), r#"the field \"escaped\""#),
    ] {
        cases.push(attach(&json!({ "data": data }), must_say));
        cases.push(refused("PATCH", SESSION, json!({ "data": data }), must_say));
        let one = json!({"session": "s", "connection": "c", "data": data});
        cases.push(refused(
            "POST",
            ATTACH_MANY,
            json!({"tenure": "a@1", "sessions": [one]}),
            must_say,
        ));
    }
    let patch = |body, must_say| refused("PATCH", SESSION, body, must_say);
    cases.extend([
        patch(json!({}), "missing field `data`"),
        patch(json!({"data": {}, "alias": "a"}), "unknown field `alias`"),
        patch(json!({"data": {}, "tenure": 5}), "tenure: invalid type"),
    ]);
    let deep = format!(
        r#"{{"tenure":"a@1","connection":"c","data":{{"x":{}{}}}}}"#,
        "[".repeat(1_000),
        "]".repeat(1_000)
    );
    let kind = Some("application/json");
    cases.push(raw("PUT", SESSION, kind, deep.as_bytes(), 422, "invalid"));
    cases
}

fn batches() -> Vec<Case> {
    let attaches = |body, must_say| refused("POST", ATTACH_MANY, body, must_say);
    let detaches = |body, must_say| refused("POST", DETACH_MANY, body, must_say);
    let one = json!({"session": "s", "connection": "c"});
    vec![
        attaches(json!({"tenure": "a@1"}), "missing field `sessions`"),
        attaches(json!({"tenure": "a@1", "sessions": ["s"]}), "sessions[0]: invalid type"),
        attaches(
            json!({"tenure": "a@1", "sessions": [one, {"session": "s"}]}),
            "sessions[1]: missing field `connection`",
        ),
        attaches(
            json!({"tenure": "a@1", "sessions": [{"session": "a b", "connection": "c"}]}),
            "sessions[0].session: ",
        ),
        attaches(
            json!({"tenure": "a@1", "sessions": [{"session": "s", "connection": "c", "tenure": "a@1"}]}),
            "unknown field `tenure`",
        ),
        attaches(
            json!({"tenure": "a@1", "sessions": [one, {"session": "s", "connection": "c", "grace_ms": 5}]}),
            "the grace of 5 ms",
        ),
        attaches(
            json!({"tenure": "a@1", "sessions": vec![one.clone(); 10_001]}),
            "10001 attaches",
        ),
        detaches(json!({"tenure": "a@1"}), "missing field `connections`"),
        detaches(
            json!({"tenure": "a@1", "connections": [one, {"session": "s", "connection": "c", "epoch": 0}]}),
            "connections[1].epoch: the epoch 0 is outside",
        ),
        detaches(
            json!({"tenure": "a@1", "connections": [{"session": "s", "connection": "c", "epoch": "5"}]}),
            "connections[0].epoch: invalid type",
        ),
        detaches(
            json!({"tenure": "a@1", "connections": vec![one.clone(); 10_001]}),
            "10001 detaches",
        ),
    ]
}

fn queries() -> Vec<Case> {
    let detach = |query: &str, must_say| refused("DELETE", &format!("{CONNECTION}{query}"), Value::Null, must_say);
    vec![
        get("/v1/groups/g/sessions?limit=0", "out of range: use 1 to 1000"),
        get("/v1/groups/g/sessions?limit=1001", "out of range: use 1 to 1000"),
        get("/v1/groups/g/sessions?limit=x", "limit"),
        get("/v1/groups/g/sessions?state=gone", "use active, disconnected or orphan"),
        get("/v1/groups/g/sessions?state=active&state=orphan", "duplicate"),
        get("/v1/groups/g/sessions?alias=a%20b", "' ' at position 2"),
        get("/v1/groups/g/sessions?alias=a&state=active", "give alias alone"),
        get("/v1/groups/g/sessions?alias=a&after=s", "give alias alone"),
        get("/v1/groups/g/sessions?alias=a&limit=0", "out of range: use 1 to 1000"),
        get("/v1/groups/g/sessions?after=a%20b", "invalid cursor"),
        get("/v1/groups/g/sessions?state=disconnected&after=s1", "invalid cursor"),
        get("/v1/groups/g/sessions?tenure=a@1", "unknown field `tenure`"),
        get("/v1/groups/g/sessions/s?x=1", "no query"),
        get("/v1/groups/g/sessions-stats?x=1", "no query"),
        get("/v1/groups/g/sessions-orphans?limit=0", "out of range: use 1 to 1000"),
        get("/v1/groups/g/sessions-orphans?overdue_ms=-1", "overdue_ms"),
        get("/v1/groups/g/sessions-orphans?overdue=1", "unknown field `overdue`"),
        refused("DELETE", "/v1/groups/g/sessions/s?force=true", Value::Null, "no query"),
        refused("PATCH", "/v1/groups/g/sessions/s?x=1", json!({"data": {}}), "no query"),
        detach("", "missing field `tenure`"),
        detach("?tenure=a@1&epoch=0", "the epoch 0 is outside"),
        detach("?tenure=a@1&epoch=9007199254740992", "outside 1..=2^53-1"),
        detach("?tenure=a@1&epoch=x", "epoch"),
        detach("?tenure=a@1&epoch=", "epoch"),
        detach("?tenure=a@1&force=true", "unknown field `force`"),
    ]
}

fn routes() -> Vec<Case> {
    vec![
        lost("/v1/groups/g/sessions/s/"),
        lost("/v1/groups/g/sessions/s/connections"),
        wrong("POST", "/v1/groups/g/sessions"),
        wrong("POST", SESSION),
        wrong("GET", CONNECTION),
        wrong("PUT", CONNECTION),
        wrong("GET", ATTACH_MANY),
        wrong("PUT", DETACH_MANY),
        wrong("DELETE", "/v1/groups/g/sessions-orphans"),
        wrong("POST", "/v1/groups/g/sessions-stats"),
    ]
}
