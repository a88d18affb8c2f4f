//! What belongs to no noun, groups, events and sweeps.

use serde_json::{Value, json};

use super::case::{Case, bodies, case, get, lost, names, refused, wrong};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        cases.push(get(&format!("/v1/groups/{name}"), must_say));
        cases.push(get(&format!("/v1/groups/{name}/events"), must_say));
        let sweep = format!("/v1/groups/{name}/sweep");
        cases.push(refused("POST", &sweep, Value::Null, must_say));
    }
    cases.extend(bodies("POST", "/v1/groups/g/sweep"));
    cases.extend(sweeps());
    cases.extend(queries());
    cases.extend(routes());
    cases
}

fn sweeps() -> [Case; 6] {
    let sweep = |body, must_say| refused("POST", "/v1/groups/g/sweep", body, must_say);
    [
        sweep(json!({"dryrun": true}), "unknown field `dryrun`"),
        sweep(json!({"dry_run": 1}), "dry_run: invalid type"),
        sweep(json!({"reconcile": "yes"}), "reconcile: invalid type"),
        sweep(json!({"pass": "a b"}), "' ' at position 2"),
        sweep(json!({"pass": "p".repeat(101)}), "at most 100"),
        sweep(json!({"wait_ms": 2001}), "above 2000"),
    ]
}

fn queries() -> Vec<Case> {
    vec![
        get("/v1/groups?after=a%20b", "invalid cursor"),
        get("/v1/groups?x=1", "unknown field `x`"),
        get("/v1/groups/g?x=1", "no query"),
        get("/v1/groups/g/events?after=x", "after"),
        get("/v1/groups/g/events?after=-1", "after"),
        get("/v1/groups/g/events?before=x", "before"),
        get("/v1/groups/g/events?before=9007199254740992", "above the maximum"),
        get("/v1/groups/g/events?after=1&before=2", "name one of the two"),
        get("/v1/groups/g/events?before=2&wait_ms=1", "omit one"),
        get("/v1/groups/g/events?after=18446744073709551615", "above the maximum"),
        get("/v1/groups/g/events?after=9999999999999999999999", "after"),
        get("/v1/groups/g/events?types=joined,nonsense", "use one of joined, left"),
        get("/v1/groups/g/events?types=joined,", "is not an event type"),
        get("/v1/groups/g/events?wait_ms=30001", "above 30000"),
        get("/v1/groups/g/events?limit=1001", "out of range: use 1 to 1000"),
        get("/v1/groups/g/events?since=1", "unknown field `since`"),
        get("/v1/now?x=1", "no query"),
        get("/v1/status?x=1", "no query"),
        get("/livez?x=1", "no query"),
        get("/readyz?x=1", "no query"),
        get("/metrics?x=1", "no query"),
    ]
}

fn routes() -> Vec<Case> {
    let empty = "the group is empty";
    vec![
        lost("/v2/groups"),
        lost("/v1"),
        lost("/v1/"),
        lost("/v1/groups/"),
        lost("/v1/groups/g/rosters"),
        case("GET", "/v1/groups//members", Value::Null, 422, "invalid", empty),
        lost("/favicon.ico"),
        wrong("GET", "/v1/groups/g/sweep"),
        wrong("POST", "/v1/groups/g/events"),
        wrong("OPTIONS", "/v1/groups"),
        wrong("POST", "/livez"),
        wrong("BREW", "/metrics"),
    ]
}
