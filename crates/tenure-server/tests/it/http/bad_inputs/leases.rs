//! Leases.

use serde_json::{Value, json};

use super::case::{Case, TENURES, bodies, get, lost, names, refused, too_large, wrong};

const ACQUIRE: &str = "/v1/groups/g/leases/l/acquire";
const RELEASE: &str = "/v1/groups/g/leases/l/release";
const ACQUIRE_MANY: &str = "/v1/groups/g/leases-acquire";
const RELEASE_MANY: &str = "/v1/groups/g/leases-release";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, must_say) in names() {
        cases.push(get(&format!("/v1/groups/{name}/leases"), must_say));
        cases.push(get(&format!("/v1/groups/g/leases/{name}"), must_say));
        for (verb, body) in [
            ("acquire", json!({"tenure": "a@1"})),
            ("release", json!({"tenure": "a@1", "token": 5})),
        ] {
            let (of_lease, of_group) = (
                format!("/v1/groups/g/leases/{name}/{verb}"),
                format!("/v1/groups/{name}/leases/l/{verb}"),
            );
            cases.push(refused("POST", &of_lease, body.clone(), must_say));
            cases.push(refused("POST", &of_group, body, must_say));
            let many = format!("/v1/groups/{name}/leases-{verb}");
            cases.push(refused("POST", &many, json!({"tenure": "a@1", "leases": []}), must_say));
        }
    }
    for tenure in TENURES {
        cases.push(get(&format!("/v1/groups/g/leases?tenure={tenure}"), ""));
        let spelt = tenure.replace("%20", " ");
        for (path, body) in [
            (ACQUIRE, json!({ "tenure": spelt })),
            (RELEASE, json!({"tenure": spelt, "token": 5})),
            (ACQUIRE_MANY, json!({"tenure": spelt, "leases": ["l"]})),
            (RELEASE_MANY, json!({"tenure": spelt, "leases": []})),
        ] {
            cases.push(refused("POST", path, body, "tenure"));
        }
    }
    for path in [ACQUIRE, RELEASE, ACQUIRE_MANY, RELEASE_MANY] {
        cases.extend(bodies("POST", path));
    }
    cases.push(too_large("POST", ACQUIRE, 1));
    cases.push(too_large("POST", ACQUIRE_MANY, 4));
    cases.push(too_large("POST", RELEASE_MANY, 4));
    cases.extend(fields());
    cases.extend(batches());
    cases.extend(queries());
    cases.extend(routes());
    cases
}

fn fields() -> Vec<Case> {
    let acquire = |body, must_say| refused("POST", ACQUIRE, body, must_say);
    let release = |body, must_say| refused("POST", RELEASE, body, must_say);
    let mut cases = vec![
        acquire(json!({}), "missing field `tenure`"),
        acquire(json!([]), "object"),
        acquire(json!({"tenure": 5}), "tenure: invalid type"),
        acquire(json!({"tenure": "a@1", "ttl_ms": 5}), "unknown field `ttl_ms`"),
        acquire(json!({"tenure": "a@1", "wait": true}), "unknown field `wait`"),
        release(json!({"tenure": "a@1"}), "missing field `token`"),
        release(json!({"token": 5}), "missing field `tenure`"),
        release(json!({"tenure": "a@1", "token": 5, "to": "a b"}), "to: the member"),
        release(json!({"tenure": "a@1", "token": 5, "to": "b@7"}), "to: the member"),
        release(json!({"tenure": "a@1", "token": 5, "to": 7}), "to: invalid type"),
        release(
            json!({"tenure": "a@1", "token": 5, "force": true}),
            "unknown field `force`",
        ),
    ];
    for (token, must_say) in [
        (json!(0), "token: the token 0 is outside"),
        (
            json!(9_007_199_254_740_992_u64),
            "token: the token 9007199254740992 is outside",
        ),
        (json!(u64::MAX), "token: the token 18446744073709551615"),
        (json!(-1), "token: invalid value"),
        (json!(5.0), "token: invalid type"),
        (json!(1e300), "token: invalid type"),
        (json!("5"), "token: invalid type"),
        (json!(null), "token: invalid type"),
        (json!([5]), "token: invalid type"),
    ] {
        cases.push(release(json!({"tenure": "a@1", "token": token}), must_say));
    }
    cases
}

fn batches() -> Vec<Case> {
    let acquires = |body, must_say| refused("POST", ACQUIRE_MANY, body, must_say);
    let releases = |body, must_say| refused("POST", RELEASE_MANY, body, must_say);
    vec![
        acquires(json!({"tenure": "a@1"}), "missing field `leases`"),
        acquires(json!({"tenure": "a@1", "leases": "l"}), "leases: invalid type"),
        acquires(json!({"tenure": "a@1", "leases": ["ok", "a/b"]}), "leases[1]: "),
        acquires(json!({"tenure": "a@1", "leases": [5]}), "leases[0]: "),
        acquires(json!({"tenure": "a@1", "leases": vec!["l"; 10_001]}), "10001 leases"),
        releases(json!({"tenure": "a@1"}), "missing field `leases`"),
        releases(json!({"tenure": "a@1", "leases": ["l"]}), "leases[0]: invalid type"),
        releases(
            json!({"tenure": "a@1", "leases": [{"lease": "l", "token": 5}, {"lease": "l"}]}),
            "leases[1]: missing field `token`",
        ),
        releases(
            json!({"tenure": "a@1", "leases": [{"lease": "l", "token": 0}]}),
            "leases[0].token: the token 0",
        ),
        releases(
            json!({"tenure": "a@1", "leases": [{"lease": "a b", "token": 5}]}),
            "leases[0].lease: ",
        ),
        releases(
            json!({"tenure": "a@1", "leases": vec![json!({"lease": "l", "token": 5}); 10_001]}),
            "10001 leases",
        ),
    ]
}

fn queries() -> Vec<Case> {
    let acquire = format!("{ACQUIRE}?tenure=a@1");
    vec![
        get("/v1/groups/g/leases?limit=0", "out of range: use 1 to 1000"),
        get("/v1/groups/g/leases?holder=a%20b", "' ' at position 2"),
        get("/v1/groups/g/leases?holder=a&tenure=a@1", "cannot be combined"),
        get("/v1/groups/g/leases?owner=a", "unknown field `owner`"),
        get("/v1/groups/g/leases?after=a%20b", "invalid cursor"),
        get("/v1/groups/g/leases?tenure=a@1&after=a%20b", "invalid cursor"),
        get("/v1/groups/g/leases/l?x=1", "no query"),
        refused("POST", &acquire, json!({"tenure": "a@1"}), "no query"),
        refused("DELETE", "/v1/groups/g/leases/kept?token=", Value::Null, "token"),
        refused("DELETE", "/v1/groups/g/leases/kept?holder=", Value::Null, "holder"),
    ]
}

fn routes() -> Vec<Case> {
    vec![
        lost("/v1/groups/g/leases/l/"),
        lost("/v1/groups/g/leases/l/renew"),
        wrong("POST", "/v1/groups/g/leases"),
        wrong("POST", "/v1/groups/g/leases/l"),
        wrong("PUT", "/v1/groups/g/leases/l"),
        wrong("GET", ACQUIRE),
        wrong("PUT", RELEASE),
        wrong("GET", ACQUIRE_MANY),
        wrong("DELETE", RELEASE_MANY),
    ]
}
