//! Targets.

use serde_json::{Value, json};

use super::case::{Case, bodies, get, lost, names, refused, wrong};

const TARGET: &str = "/v1/groups/g/targets/t";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        for method in ["PUT", "GET", "DELETE"] {
            let (of_target, of_group) = (
                format!("/v1/groups/g/targets/{name}"),
                format!("/v1/groups/{name}/targets/t"),
            );
            cases.push(refused(method, &of_target, Value::Null, must_say));
            cases.push(refused(method, &of_group, Value::Null, must_say));
        }
        cases.push(get(&format!("/v1/groups/{name}/targets"), must_say));
    }
    cases.extend(bodies("PUT", TARGET));
    let put = |body, must_say| refused("PUT", TARGET, body, must_say);
    cases.extend([
        put(json!({"weight": 0}), "the weight 0 is out of range: use 1 to 1000"),
        put(json!({"weight": 1001}), "the weight 1001 is out of range"),
        put(json!({"weight": -1}), "weight: invalid value"),
        put(json!({"weight": 1.5}), "weight: invalid type"),
        put(json!({"weight": "5"}), "weight: invalid type"),
        put(json!({"weight": 4_294_967_296_u64}), "weight: invalid value"),
        put(json!({"paused": "yes"}), "paused: invalid type"),
        put(json!({"paused": null}), "paused: invalid type"),
        put(json!({"pause": true}), "unknown field `pause`"),
        put(json!([]), "object"),
        get("/v1/groups/g/targets?limit=1001", "out of range: use 1 to 1000"),
        get("/v1/groups/g/targets?after=a%20b", "invalid cursor"),
        get("/v1/groups/g/targets?plain=yes", "plain"),
        get("/v1/groups/g/targets?holder=a", "unknown field `holder`"),
        get("/v1/groups/g/targets/t?paused=true", "unknown field `paused`"),
        refused("DELETE", "/v1/groups/g/targets/t?force=true", Value::Null, "no query"),
        lost("/v1/groups/g/targets/t/pause"),
        wrong("POST", "/v1/groups/g/targets"),
        wrong("PATCH", TARGET),
    ]);
    cases
}
