//! Members, their tenures and their beats.

use serde_json::{Value, json};

use super::case::{Case, TENURES, bodies, get, lost, names, raw, refused, too_large, wrong};

const MEMBERS: &str = "/v1/groups/g/members";
const BEATS: &str = "/v1/groups/g/beats";
const BEAT: &str = "/v1/groups/g/tenures/a@1/beat";

const LABELS: &str = "/v1/groups/g/tenures/a@1/labels";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        let members = format!("/v1/groups/{name}/members");
        cases.push(refused("POST", &members, json!({"member": "m"}), must_say));
        cases.push(get(&members, must_say));
        cases.push(get(&format!("{MEMBERS}/{name}"), must_say));
        let beats = format!("/v1/groups/{name}/beats");
        cases.push(refused("POST", &beats, json!({"beats": []}), must_say));
    }
    for tenure in TENURES {
        let path = format!("/v1/groups/g/tenures/{tenure}");
        cases.push(refused("PUT", &format!("{path}/beat"), Value::Null, ""));
        cases.push(refused("DELETE", &path, Value::Null, ""));
    }
    for (method, path) in [("POST", MEMBERS), ("POST", BEATS), ("PUT", BEAT), ("PUT", LABELS)] {
        cases.extend(bodies(method, path));
    }
    // Deeply nested: refused by the parser before the stack overflows.
    let (deep, kind) = ("[".repeat(100_000), Some("application/json"));
    cases.push(raw("POST", MEMBERS, kind, deep.as_bytes(), 400, "malformed_json"));
    cases.push(too_large("POST", MEMBERS, 1));
    cases.push(too_large("PUT", BEAT, 1));
    cases.push(too_large("PUT", LABELS, 1));
    cases.push(refused("PUT", LABELS, json!({}), "missing field `labels`"));
    cases.push(refused(
        "PUT",
        LABELS,
        json!({"labels": {"": "x"}}),
        "the name at least 1",
    ));
    cases.push(too_large("POST", BEATS, 4));
    cases.extend(joins());
    cases.extend(beats());
    cases.extend(queries());
    cases.extend(routes());
    cases
}

fn joins() -> Vec<Case> {
    let many_labels: serde_json::Map<_, _> = (0..17).map(|n| (format!("l{n}"), json!("v"))).collect();
    let join = |body, must_say| refused("POST", MEMBERS, body, must_say);
    vec![
        join(json!({}), "missing field `member`"),
        join(json!([]), "object"),
        join(json!(["m", 5000, {}]), "object"),
        join(json!("m"), "invalid type"),
        join(json!({"member": 5}), "member: invalid type"),
        join(json!({"member": null}), "member: invalid type"),
        join(json!({"member": ""}), "member: the member is empty"),
        join(json!({"member": "a b"}), "' ' at position 2"),
        join(json!({"member": ".."}), "has a special meaning in a URL path"),
        join(json!({"member": "m", "ttl_ms": "5s"}), "ttl_ms: invalid type"),
        join(json!({"member": "m", "ttl_ms": -1}), "ttl_ms: invalid value"),
        join(json!({"member": "m", "ttl_ms": 5000.5}), "ttl_ms: invalid type"),
        join(json!({"member": "m", "ttl_ms": true}), "ttl_ms: invalid type"),
        join(json!({"member": "m", "ttl_ms": 0}), "the ttl 0ms is outside 1s"),
        join(json!({"member": "m", "ttl_ms": 999}), "999ms"),
        join(json!({"member": "m", "ttl_ms": 120_001}), "max_ttl"),
        join(json!({"member": "m", "ttl_ms": u64::MAX}), "max_ttl"),
        join(json!({"member": "m", "tll_ms": 5000}), "unknown field `tll_ms`"),
        join(json!({"member": "m", "labels": many_labels}), "17 labels"),
        join(json!({"member": "m", "labels": {"": "v"}}), "labels: the label"),
        join(json!({"member": "m", "labels": {"l": "v".repeat(257)}}), "257 bytes"),
        join(json!({"member": "m", "labels": {"l": 5}}), "labels.l: invalid type"),
    ]
}

fn beats() -> Vec<Case> {
    let beats = |body, must_say| refused("POST", BEATS, body, must_say);
    let mut cases = vec![
        beats(json!({}), "missing field `beats`"),
        beats(json!({"beats": {}}), "beats: invalid type"),
        beats(
            json!({"beats": [{"tenure": "a@1"}, {"tenure": "a"}]}),
            "beats[1].tenure",
        ),
        beats(
            json!({"beats": [{"tenure": "a@1"}, {"tenure": "a@1", "ttl": 5}]}),
            "beats[1].ttl: unknown field",
        ),
        beats(json!({"beats": [{"tenure": "a@1", "ttl_ms": "x"}]}), "beats[0].ttl_ms"),
        beats(json!({"beats": [{"tenure": "a@1", "ttl_ms": 5}]}), "ttl 5ms"),
        beats(json!({"beats": [{}]}), "missing field `tenure`"),
        refused("PUT", BEAT, json!({"ttl": 5}), "unknown field `ttl`"),
        refused("PUT", BEAT, json!({"ttl_ms": 5}), "ttl 5ms"),
    ];
    for (revision, must_say) in [
        (json!(9_007_199_254_740_992_u64), "the revision 9007199254740992"),
        (json!(-1), "revision: invalid value"),
        (json!("5"), "revision: invalid type"),
        (json!(null), "revision: invalid type"),
    ] {
        let one = json!({"tenure": "a@1", "revision": revision});
        cases.push(beats(json!({ "beats": [one] }), must_say));
        cases.push(refused("PUT", BEAT, json!({ "revision": revision }), must_say));
    }
    cases
}

fn queries() -> Vec<Case> {
    let end = |query: &str, must_say| {
        let path = format!("/v1/groups/g/tenures/a@1?{query}");
        refused("DELETE", &path, Value::Null, must_say)
    };
    vec![
        get("/v1/groups/g/members?limit=0", "out of range: use 1 to 1000"),
        get("/v1/groups/g/members?limit=1001", "out of range: use 1 to 1000"),
        get("/v1/groups/g/members?limit=-1", "limit"),
        get("/v1/groups/g/members?limit=ten", "limit"),
        get("/v1/groups/g/members?limit=99999999999", "limit"),
        get("/v1/groups/g/members?limit=1&limit=2", "duplicate"),
        get("/v1/groups/g/members?offset=1", "unknown field `offset`"),
        get("/v1/groups/g/members?after=%F0%9F%A6%80", "invalid cursor"),
        get("/v1/groups/g/members/m?x=1", "no query"),
        refused("POST", "/v1/groups/g/members?x=1", json!({"member": "m"}), "no query"),
        end("expel=yes", "expel"),
        end("force=true", "unknown field `force`"),
    ]
}

fn routes() -> Vec<Case> {
    vec![
        lost("/v1/groups/g/members/"),
        wrong("DELETE", MEMBERS),
        wrong("PATCH", "/v1/groups/g/members/m"),
        wrong("GET", BEAT),
        wrong("GET", BEATS),
    ]
}
