//! Whatever is wrong with a request: a stable code, a sentence that names what is wrong, and nothing changed.

use serde_json::{Value, json};
use tenure_server::Settings;

use crate::common::{Answer, Daemon};

/// A request, the answer it deserves, and a word that the sentence must contain.
struct Case {
    method: &'static str,
    path: String,
    kind: Option<&'static str>,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
    must_say: &'static str,
}

fn case(
    method: &'static str,
    path: &str,
    body: Value,
    status: u16,
    code: &'static str,
    must_say: &'static str,
) -> Case {
    let (kind, body) = if body.is_null() {
        (None, Vec::new())
    } else {
        (Some("application/json"), body.to_string().into())
    };
    Case {
        method,
        path: path.to_owned(),
        kind,
        body,
        status,
        code,
        must_say,
    }
}

fn raw(
    method: &'static str,
    path: &str,
    kind: Option<&'static str>,
    body: &[u8],
    status: u16,
    code: &'static str,
) -> Case {
    Case {
        method,
        path: path.to_owned(),
        kind,
        body: body.into(),
        status,
        code,
        must_say: "",
    }
}

fn bad_names() -> Vec<Case> {
    let mut cases = Vec::new();
    let long = "x".repeat(201);
    for (name, must_say) in [
        ("a%20b", "' ' at position 2"),
        ("a%2Fb", "'/' at position 2"),
        ("%7Bx%7D", "'{' at position 1"),
        ("%C3%A9", "'é' at position 1"),
        ("a%00", "'\\\\0' at position 2"),
        ("a%zz", "'%' at position 2"),
        ("a%F0%9F", "not UTF-8"),
        (long.as_str(), "201 characters"),
    ] {
        let bad = |method, path: String, body| case(method, &path, body, 422, "invalid", must_say);
        cases.push(bad(
            "POST",
            format!("/v1/groups/{name}/members"),
            json!({"member": "m"}),
        ));
        cases.push(bad("GET", format!("/v1/groups/{name}/members"), Value::Null));
        cases.push(bad("GET", format!("/v1/groups/g/members/{name}"), Value::Null));
        cases.push(bad("GET", format!("/v1/groups/{name}"), Value::Null));
        cases.push(bad("POST", format!("/v1/groups/{name}/beats"), json!({"beats": []})));
        cases.push(bad("GET", format!("/v1/groups/{name}/events"), Value::Null));
        cases.push(bad("POST", format!("/v1/groups/{name}/sweep"), Value::Null));
        cases.push(bad(
            "GET",
            format!("/v1/groups/g/registries/{name}/claims"),
            Value::Null,
        ));
        cases.push(bad(
            "GET",
            format!("/v1/groups/g/registries/r/claims/{name}"),
            Value::Null,
        ));
        cases.push(bad(
            "PUT",
            format!("/v1/groups/g/registries/r/claims/{name}"),
            json!({"tenure": "a@1"}),
        ));
        cases.push(bad("GET", format!("/v1/groups/{name}/leases"), Value::Null));
        cases.push(bad("GET", format!("/v1/groups/g/leases/{name}"), Value::Null));
        for (verb, body) in [
            ("acquire", json!({"tenure": "a@1"})),
            ("release", json!({"tenure": "a@1", "token": 5})),
        ] {
            cases.push(bad("POST", format!("/v1/groups/g/leases/{name}/{verb}"), body.clone()));
            cases.push(bad("POST", format!("/v1/groups/{name}/leases/l/{verb}"), body));
        }
        cases.push(bad(
            "POST",
            format!("/v1/groups/{name}/leases-acquire"),
            json!({"tenure": "a@1", "leases": []}),
        ));
        cases.push(bad(
            "POST",
            format!("/v1/groups/{name}/leases-release"),
            json!({"tenure": "a@1", "leases": []}),
        ));
        for method in ["PUT", "GET", "DELETE"] {
            cases.push(bad(method, format!("/v1/groups/g/targets/{name}"), Value::Null));
            cases.push(bad(method, format!("/v1/groups/{name}/targets/t"), Value::Null));
        }
        cases.push(bad("GET", format!("/v1/groups/{name}/targets"), Value::Null));
    }
    cases
}

fn bad_tenures() -> Vec<Case> {
    let mut cases = Vec::new();
    for tenure in [
        "m",
        "m@",
        "@5",
        "m@0",
        "m@x",
        "m@+1",
        "m@9007199254740992",
        "a@1@2",
        "a%20b@1",
        "m@01",
    ] {
        cases.push(case(
            "PUT",
            &format!("/v1/groups/g/tenures/{tenure}/beat"),
            Value::Null,
            422,
            "invalid",
            "",
        ));
        cases.push(case(
            "DELETE",
            &format!("/v1/groups/g/tenures/{tenure}"),
            Value::Null,
            422,
            "invalid",
            "",
        ));
        let release = format!("/v1/groups/g/registries/r/claims/k?tenure={tenure}");
        cases.push(case("DELETE", &release, Value::Null, 422, "invalid", ""));
        let held = format!("/v1/groups/g/leases?tenure={tenure}");
        cases.push(case("GET", &held, Value::Null, 422, "invalid", ""));
        let spelt = tenure.replace("%20", " ");
        for (path, body) in [
            ("leases/l/acquire", json!({ "tenure": spelt })),
            ("leases/l/release", json!({"tenure": spelt, "token": 5})),
            ("leases-acquire", json!({"tenure": spelt, "leases": ["l"]})),
            ("leases-release", json!({"tenure": spelt, "leases": []})),
        ] {
            cases.push(case(
                "POST",
                &format!("/v1/groups/g/{path}"),
                body,
                422,
                "invalid",
                "tenure",
            ));
        }
    }
    cases
}

fn bad_fields() -> Vec<Case> {
    let many_labels: serde_json::Map<_, _> = (0..17).map(|n| (format!("l{n}"), json!("v"))).collect();
    let join = |body, must_say| case("POST", "/v1/groups/g/members", body, 422, "invalid", must_say);
    let beats = |body, must_say| case("POST", "/v1/groups/g/beats", body, 422, "invalid", must_say);
    let claim = |body, must_say| {
        case(
            "PUT",
            "/v1/groups/g/registries/r/claims/k",
            body,
            422,
            "invalid",
            must_say,
        )
    };
    let claims = |body, must_say| {
        case(
            "POST",
            "/v1/groups/g/registries/r/claims",
            body,
            422,
            "invalid",
            must_say,
        )
    };
    let sweep = |body, must_say| case("POST", "/v1/groups/g/sweep", body, 422, "invalid", must_say);
    vec![
        join(json!({}), "missing field `member`"),
        join(json!([]), "object"),
        join(json!(["m", 5000, {}]), "object"),
        join(json!("m"), "invalid type"),
        join(json!({"member": 5}), "member: invalid type"),
        join(json!({"member": null}), "member: invalid type"),
        join(json!({"member": ""}), "member: the member is empty"),
        join(json!({"member": "a b"}), "' ' at position 2"),
        join(json!({"member": ".."}), "means another place in the path of a URL"),
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
        claim(json!({}), "missing field `tenure`"),
        claim(json!({"tenure": "a"}), "tenure: "),
        claim(json!({"tenure": "a@1", "if_absent": "yes"}), "if_absent: invalid type"),
        claim(json!({"tenure": "a@1", "mode": "take"}), "unknown field `mode`"),
        claims(json!({"tenure": "a@1"}), "missing field `keys`"),
        claims(json!({"tenure": "a@1", "keys": ["ok", "a/b"]}), "keys[1]: "),
        claims(json!({"tenure": "a@1", "keys": vec!["k"; 10_001]}), "10001 keys"),
        sweep(json!({"dryrun": true}), "unknown field `dryrun`"),
        sweep(json!({"dry_run": 1}), "dry_run: invalid type"),
        sweep(json!({"pass": "a b"}), "' ' at position 2"),
        sweep(json!({"pass": "p".repeat(101)}), "at most 100"),
        sweep(json!({"wait_ms": 2001}), "above 2000"),
        case(
            "PUT",
            "/v1/groups/g/tenures/a@1/beat",
            json!({"ttl": 5}),
            422,
            "invalid",
            "unknown field `ttl`",
        ),
        case(
            "PUT",
            "/v1/groups/g/tenures/a@1/beat",
            json!({"ttl_ms": 5}),
            422,
            "invalid",
            "ttl 5ms",
        ),
    ]
}

fn bad_lease_fields() -> Vec<Case> {
    let post =
        |path: &str, body, must_say| case("POST", &format!("/v1/groups/g/{path}"), body, 422, "invalid", must_say);
    let acquire = |body, must_say| post("leases/l/acquire", body, must_say);
    let release = |body, must_say| post("leases/l/release", body, must_say);
    let acquires = |body, must_say| post("leases-acquire", body, must_say);
    let releases = |body, must_say| post("leases-release", body, must_say);
    let put = |body, must_say| case("PUT", "/v1/groups/g/targets/t", body, 422, "invalid", must_say);
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
        put(json!({"weight": 0}), "the weight 0 is outside 1 to 1000"),
        put(json!({"weight": 1001}), "the weight 1001 is outside"),
        put(json!({"weight": -1}), "weight: invalid value"),
        put(json!({"weight": 1.5}), "weight: invalid type"),
        put(json!({"weight": "5"}), "weight: invalid type"),
        put(json!({"weight": 4_294_967_296_u64}), "weight: invalid value"),
        put(json!({"paused": "yes"}), "paused: invalid type"),
        put(json!({"paused": null}), "paused: invalid type"),
        put(json!({"pause": true}), "unknown field `pause`"),
        put(json!([]), "object"),
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
    for (revision, must_say) in [
        (json!(9_007_199_254_740_992_u64), "the revision 9007199254740992"),
        (json!(-1), "revision: invalid value"),
        (json!("5"), "revision: invalid type"),
        (json!(null), "revision: invalid type"),
    ] {
        cases.push(post(
            "beats",
            json!({"beats": [{"tenure": "a@1", "revision": revision}]}),
            must_say,
        ));
        cases.push(case(
            "PUT",
            "/v1/groups/g/tenures/a@1/beat",
            json!({"revision": revision}),
            422,
            "invalid",
            must_say,
        ));
    }
    cases
}

fn bad_queries() -> Vec<Case> {
    let get = |path: &str, must_say| case("GET", path, Value::Null, 422, "invalid", must_say);
    vec![
        get("/v1/groups/g/members?limit=0", "outside 1 to 1000"),
        get("/v1/groups/g/members?limit=1001", "outside 1 to 1000"),
        get("/v1/groups/g/members?limit=-1", "limit"),
        get("/v1/groups/g/members?limit=ten", "limit"),
        get("/v1/groups/g/members?limit=99999999999", "limit"),
        get("/v1/groups/g/members?limit=1&limit=2", "duplicate"),
        get("/v1/groups/g/members?offset=1", "unknown field `offset`"),
        get("/v1/groups/g/members?after=%F0%9F%A6%80", "not a place in this listing"),
        get("/v1/groups/g/members/m?x=1", "no query"),
        get("/v1/groups?after=a%20b", "not a place in this listing"),
        get("/v1/groups?x=1", "unknown field `x`"),
        get("/v1/groups/g?x=1", "no query"),
        get("/v1/groups/g/registries/r/claims?owner=a%20b", "' ' at position 2"),
        get("/v1/groups/g/registries/r/claims?member=a", "unknown field `member`"),
        get("/v1/groups/g/registries/r/claims/k?x", "no query"),
        get("/v1/groups/g/events?after=x", "after"),
        get("/v1/groups/g/events?after=-1", "after"),
        get(
            "/v1/groups/g/events?after=18446744073709551615",
            "no event has that number",
        ),
        get("/v1/groups/g/events?after=9999999999999999999999", "after"),
        get("/v1/groups/g/events?types=joined,nonsense", "there are joined, left"),
        get("/v1/groups/g/events?types=joined,", "is not a type"),
        get("/v1/groups/g/events?wait_ms=30001", "above 30000"),
        get("/v1/groups/g/events?limit=1001", "outside 1 to 1000"),
        get("/v1/groups/g/events?since=1", "unknown field `since`"),
        get("/v1/groups/g/leases?limit=0", "outside 1 to 1000"),
        get("/v1/groups/g/leases?holder=a%20b", "' ' at position 2"),
        get("/v1/groups/g/leases?holder=a&tenure=a@1", "not for both"),
        get("/v1/groups/g/leases?owner=a", "unknown field `owner`"),
        get("/v1/groups/g/leases?after=a%20b", "not a place in this listing"),
        get(
            "/v1/groups/g/leases?tenure=a@1&after=a%20b",
            "not a place in this listing",
        ),
        get("/v1/groups/g/leases/l?x=1", "no query"),
        get("/v1/groups/g/targets?limit=1001", "outside 1 to 1000"),
        get("/v1/groups/g/targets?after=a%20b", "not a place in this listing"),
        get("/v1/groups/g/targets?plain=yes", "plain"),
        get("/v1/groups/g/targets?holder=a", "unknown field `holder`"),
        get("/v1/groups/g/targets/t?paused=true", "unknown field `paused`"),
        case(
            "POST",
            "/v1/groups/g/leases/l/acquire?tenure=a@1",
            json!({"tenure": "a@1"}),
            422,
            "invalid",
            "no query",
        ),
        case(
            "DELETE",
            "/v1/groups/g/targets/t?force=true",
            Value::Null,
            422,
            "invalid",
            "no query",
        ),
        get("/v1/now?x=1", "no query"),
        get("/v1/status?x=1", "no query"),
        get("/livez?x=1", "no query"),
        get("/readyz?x=1", "no query"),
        get("/metrics?x=1", "no query"),
        case(
            "POST",
            "/v1/groups/g/members?x=1",
            json!({"member": "m"}),
            422,
            "invalid",
            "no query",
        ),
        case(
            "DELETE",
            "/v1/groups/g/tenures/a@1?expel=yes",
            Value::Null,
            422,
            "invalid",
            "expel",
        ),
        case(
            "DELETE",
            "/v1/groups/g/tenures/a@1?force=true",
            Value::Null,
            422,
            "invalid",
            "unknown field `force`",
        ),
        case(
            "DELETE",
            "/v1/groups/g/registries/r/claims/k",
            Value::Null,
            422,
            "invalid",
            "missing field `tenure`",
        ),
    ]
}

fn bad_bodies() -> Vec<Case> {
    let json_type = Some("application/json");
    let mut cases = Vec::new();
    for (method, path) in [
        ("POST", "/v1/groups/g/members"),
        ("POST", "/v1/groups/g/beats"),
        ("PUT", "/v1/groups/g/registries/r/claims/k"),
        ("POST", "/v1/groups/g/registries/r/claims"),
        ("POST", "/v1/groups/g/sweep"),
        ("PUT", "/v1/groups/g/tenures/a@1/beat"),
        ("POST", "/v1/groups/g/leases/l/acquire"),
        ("POST", "/v1/groups/g/leases/l/release"),
        ("POST", "/v1/groups/g/leases-acquire"),
        ("POST", "/v1/groups/g/leases-release"),
        ("PUT", "/v1/groups/g/targets/t"),
    ] {
        for body in [
            &b"{"[..],
            b"member=m",
            b"{\"member\":\"m\"",
            b"{} {}",
            b"\xff\xfe",
            b"nul",
        ] {
            cases.push(raw(method, path, json_type, body, 400, "malformed_json"));
        }
        for kind in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            Some("application/jsonx"),
            Some(""),
        ] {
            cases.push(raw(method, path, kind, b"{}", 415, "unsupported_media_type"));
        }
    }
    // Nested deeper than anybody needs: refused by the reader, not by the stack.
    let deep = "[".repeat(100_000);
    cases.push(raw(
        "POST",
        "/v1/groups/g/members",
        json_type,
        deep.as_bytes(),
        400,
        "malformed_json",
    ));
    let (large, larger) = (vec![b' '; (1 << 20) + 1], vec![b' '; (4 << 20) + 1]);
    cases.push(raw(
        "POST",
        "/v1/groups/g/members",
        json_type,
        &large,
        413,
        "body_too_large",
    ));
    cases.push(raw(
        "PUT",
        "/v1/groups/g/tenures/a@1/beat",
        json_type,
        &large,
        413,
        "body_too_large",
    ));
    cases.push(raw(
        "POST",
        "/v1/groups/g/beats",
        json_type,
        &larger,
        413,
        "body_too_large",
    ));
    for path in ["/v1/groups/g/leases-acquire", "/v1/groups/g/leases-release"] {
        cases.push(raw("POST", path, json_type, &larger, 413, "body_too_large"));
    }
    cases.push(raw(
        "POST",
        "/v1/groups/g/leases/l/acquire",
        json_type,
        &large,
        413,
        "body_too_large",
    ));
    cases
}

fn bad_routes() -> Vec<Case> {
    let lost = |path| case("GET", path, Value::Null, 404, "no_such_route", "openapi.json");
    let wrong = |method, path| case(method, path, Value::Null, 405, "method_not_allowed", "Allow");
    vec![
        lost("/v2/groups"),
        lost("/v1"),
        lost("/v1/"),
        lost("/v1/groups/"),
        case(
            "GET",
            "/v1/groups//members",
            Value::Null,
            422,
            "invalid",
            "the group is empty",
        ),
        lost("/v1/groups/g/members/"),
        lost("/v1/groups/g/leases/l/"),
        lost("/v1/groups/g/leases/l/renew"),
        lost("/v1/groups/g/targets/t/pause"),
        lost("/v1/groups/g/sessions"),
        lost("/favicon.ico"),
        wrong("DELETE", "/v1/groups/g/members"),
        wrong("PATCH", "/v1/groups/g/members/m"),
        wrong("GET", "/v1/groups/g/tenures/a@1/beat"),
        wrong("GET", "/v1/groups/g/beats"),
        wrong("GET", "/v1/groups/g/sweep"),
        wrong("POST", "/v1/groups/g/events"),
        wrong("POST", "/v1/groups/g/leases"),
        wrong("DELETE", "/v1/groups/g/leases/l"),
        wrong("PUT", "/v1/groups/g/leases/l"),
        wrong("GET", "/v1/groups/g/leases/l/acquire"),
        wrong("PUT", "/v1/groups/g/leases/l/release"),
        wrong("GET", "/v1/groups/g/leases-acquire"),
        wrong("DELETE", "/v1/groups/g/leases-release"),
        wrong("POST", "/v1/groups/g/targets"),
        wrong("PATCH", "/v1/groups/g/targets/t"),
        wrong("OPTIONS", "/v1/groups"),
        wrong("POST", "/livez"),
        wrong("BREW", "/metrics"),
    ]
}

#[tokio::test]
async fn a_bad_request_is_refused_by_name_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let (tenure, other) = (daemon.join("g", "keeper").await, daemon.join("g", "other").await);
    daemon
        .send(
            "PUT",
            "/v1/groups/g/registries/r/claims/kept",
            json!({ "tenure": tenure }),
        )
        .await;
    let held = json!({ "tenure": tenure });
    daemon.send("POST", "/v1/groups/g/leases/kept/acquire", held).await;
    daemon
        .send("PUT", "/v1/groups/g/targets/kept", json!({"weight": 7}))
        .await;
    let sight = async || {
        let events = daemon.get("/v1/groups/g/events?limit=1000").await.json();
        let claims = daemon.get("/v1/groups/g/registries/r/claims").await.json();
        let targets = daemon.get("/v1/groups/g/targets").await.json();
        let held = daemon.get("/v1/groups/g/leases/kept").await.json()["token"].clone();
        (events, claims, targets, held, daemon.get("/v1/groups").await.json())
    };
    let before = sight().await;
    let cases = [
        bad_names(),
        bad_tenures(),
        bad_fields(),
        bad_lease_fields(),
        bad_queries(),
        bad_bodies(),
        bad_routes(),
    ];
    let mut wrong = Vec::new();
    for Case {
        method,
        path,
        kind,
        body,
        status,
        code,
        must_say,
    } in cases.into_iter().flatten()
    {
        let mut request = daemon.request(method, &path);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let shown = format!(
            "{method} {path} {:?} {}",
            kind,
            String::from_utf8_lossy(&body[..body.len().min(120)])
        );
        let answer = Answer::read(request.body(body).send().await.expect(&shown)).await;
        if (answer.status.as_u16(), answer.code().as_str()) != (status, code) || !answer.text.contains(must_say) {
            wrong.push(format!(
                "{shown}\n  wanted {status} {code} {must_say:?}\n  got {answer:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(sight().await, before);
    assert_eq!(
        daemon.get("/v1/groups/g/members/other").await.json()["tenure"],
        json!(other)
    );
}

#[tokio::test]
async fn a_bad_not_after_and_a_bad_last_event_id_are_refused_by_name() {
    let daemon = Daemon::start().await;
    for bad in ["yesterday", "", "1767225600", "1960-01-01T00:00:00Z"] {
        let request = daemon
            .request("POST", "/v1/groups/g/members")
            .header("Tenure-Not-After", bad);
        let answer = Answer::read(request.json(&json!({"member": "m"})).send().await.unwrap()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (422, "invalid".to_owned()),
            "{bad}"
        );
        assert!(answer.text.contains("Tenure-Not-After"), "{}", answer.text);
    }
    let request = daemon
        .request("GET", "/v1/groups/g/events")
        .header("accept", "text/event-stream");
    let answer = Answer::read(request.header("last-event-id", "x").send().await.unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (422, "invalid".to_owned()));
    let request = daemon
        .request("GET", "/v1/groups/g/events?limit=5")
        .header("accept", "text/event-stream");
    assert_eq!(Answer::read(request.send().await.unwrap()).await.code(), "invalid");
    assert_eq!(daemon.get("/v1/groups").await.json(), json!({"groups": []}));
}

#[tokio::test]
async fn a_method_that_is_not_served_is_told_which_are() {
    let daemon = Daemon::start().await;
    let answer = Answer::read(daemon.request("DELETE", "/v1/groups/g/members").send().await.unwrap()).await;
    let mut allowed: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_off_at_the_limit() {
    let daemon = Daemon::with(Settings {
        body_limit: 1000,
        ..Settings::default()
    })
    .await;
    let pieces = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100])));
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .header("content-type", "application/json");
    let answer = Answer::read(request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (413, "body_too_large".to_owned())
    );
    let fits = futures_util::stream::iter([&b"{\"member\""[..], b":\"m\"", b"}"].map(Ok::<_, std::io::Error>));
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .header("content-type", "application/json; charset=utf-8");
    assert_eq!(
        request
            .body(reqwest::Body::wrap_stream(fits))
            .send()
            .await
            .unwrap()
            .status(),
        201
    );
}
