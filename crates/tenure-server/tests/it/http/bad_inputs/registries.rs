//! Registries and their claims.

use serde_json::{Value, json};

use super::case::{Case, TENURES, bodies, get, names, refused};

const CLAIMS: &str = "/v1/groups/g/registries/r/claims";
const CLAIM: &str = "/v1/groups/g/registries/r/claims/k";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        cases.push(get(&format!("/v1/groups/g/registries/{name}/claims"), must_say));
        let claim = format!("{CLAIMS}/{name}");
        cases.push(get(&claim, must_say));
        cases.push(refused("PUT", &claim, json!({"tenure": "a@1"}), must_say));
    }
    for tenure in TENURES {
        let release = format!("{CLAIM}?tenure={tenure}");
        cases.push(refused("DELETE", &release, Value::Null, ""));
    }
    cases.extend(bodies("PUT", CLAIM));
    cases.extend(bodies("POST", CLAIMS));
    let claim = |body, must_say| refused("PUT", CLAIM, body, must_say);
    let claims = |body, must_say| refused("POST", CLAIMS, body, must_say);
    cases.extend([
        claim(json!({}), "missing field `tenure`"),
        claim(json!({"tenure": "a"}), "tenure: "),
        claim(json!({"tenure": "a@1", "if_absent": "yes"}), "if_absent: invalid type"),
        claim(json!({"tenure": "a@1", "mode": "take"}), "unknown field `mode`"),
        claims(json!({"tenure": "a@1"}), "missing field `keys`"),
        claims(json!({"tenure": "a@1", "keys": ["ok", "a/b"]}), "keys[1]: "),
        claims(json!({"tenure": "a@1", "keys": vec!["k"; 10_001]}), "10001 keys"),
        get("/v1/groups/g/registries/r/claims?owner=a%20b", "' ' at position 2"),
        get("/v1/groups/g/registries/r/claims?member=a", "unknown field `member`"),
        get("/v1/groups/g/registries/r/claims/k?x", "no query"),
        refused("DELETE", CLAIM, Value::Null, "missing field `tenure`"),
    ]);
    cases
}
