//! The document describes what is served, all of it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::Daemon;

/// The surface that clients in other languages rely on. A route may be added here, and none may be taken away.
const SERVED: &[(&str, &str)] = &[
    ("get", "/"),
    ("get", "/livez"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("get", "/readyz"),
    ("get", "/v1/doctor"),
    ("get", "/v1/groups"),
    ("get", "/v1/groups/{g}"),
    ("post", "/v1/groups/{g}/beats"),
    ("get", "/v1/groups/{g}/events"),
    ("get", "/v1/groups/{g}/leases"),
    ("post", "/v1/groups/{g}/leases-acquire"),
    ("post", "/v1/groups/{g}/leases-release"),
    ("get", "/v1/groups/{g}/leases/{l}"),
    ("delete", "/v1/groups/{g}/leases/{l}"),
    ("post", "/v1/groups/{g}/leases/{l}/acquire"),
    ("post", "/v1/groups/{g}/leases/{l}/release"),
    ("get", "/v1/groups/{g}/members"),
    ("post", "/v1/groups/{g}/members"),
    ("get", "/v1/groups/{g}/members/{m}"),
    ("get", "/v1/groups/{g}/registries/{r}/claims"),
    ("post", "/v1/groups/{g}/registries/{r}/claims"),
    ("delete", "/v1/groups/{g}/registries/{r}/claims/{key}"),
    ("get", "/v1/groups/{g}/registries/{r}/claims/{key}"),
    ("put", "/v1/groups/{g}/registries/{r}/claims/{key}"),
    ("get", "/v1/groups/{g}/sessions"),
    ("post", "/v1/groups/{g}/sessions-attach"),
    ("post", "/v1/groups/{g}/sessions-detach"),
    ("get", "/v1/groups/{g}/sessions-orphans"),
    ("get", "/v1/groups/{g}/sessions-stats"),
    ("delete", "/v1/groups/{g}/sessions/{s}"),
    ("get", "/v1/groups/{g}/sessions/{s}"),
    ("patch", "/v1/groups/{g}/sessions/{s}"),
    ("put", "/v1/groups/{g}/sessions/{s}"),
    ("delete", "/v1/groups/{g}/sessions/{s}/connections/{c}"),
    ("post", "/v1/groups/{g}/sweep"),
    ("post", "/v1/groups/{g}/settle"),
    ("post", "/v1/settle"),
    ("get", "/v1/groups/{g}/targets"),
    ("delete", "/v1/groups/{g}/targets/{t}"),
    ("get", "/v1/groups/{g}/targets/{t}"),
    ("put", "/v1/groups/{g}/targets/{t}"),
    ("delete", "/v1/groups/{g}/tenures/{t}"),
    ("put", "/v1/groups/{g}/tenures/{t}/beat"),
    ("put", "/v1/groups/{g}/tenures/{t}/labels"),
    ("get", "/v1/hot-store"),
    ("put", "/v1/hot-store"),
    ("get", "/v1/now"),
    ("get", "/v1/rosters"),
    ("get", "/v1/rosters/{r}"),
    ("patch", "/v1/rosters/{r}"),
    ("get", "/v1/rosters/{r}/availability"),
    ("get", "/v1/rosters/{r}/available"),
    ("post", "/v1/rosters/{r}/engagements"),
    ("get", "/v1/rosters/{r}/engagements/{e}"),
    ("patch", "/v1/rosters/{r}/engagements/{e}"),
    ("get", "/v1/rosters/{r}/log"),
    ("get", "/v1/rosters/{r}/providers"),
    ("delete", "/v1/rosters/{r}/providers/{p}"),
    ("get", "/v1/rosters/{r}/providers/{p}"),
    ("put", "/v1/rosters/{r}/providers/{p}"),
    ("post", "/v1/rosters/{r}/providers/{p}/activate"),
    ("post", "/v1/rosters/{r}/providers/{p}/deactivate"),
    ("post", "/v1/rosters/{r}/providers/{p}/heartbeat"),
    ("post", "/v1/rosters/{r}/providers/{p}/offline"),
    ("post", "/v1/rosters/{r}/providers/{p}/online"),
    ("post", "/v1/rosters/{r}/reserve"),
    ("get", "/v1/rosters/{r}/stats"),
    ("get", "/v1/status"),
];

fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let of = |path: &String, item: &'_ Value| -> Vec<(String, String)> {
        item.as_object()
            .expect("operations")
            .keys()
            .map(|method| (method.clone(), path.clone()))
            .collect()
    };
    let names = paths.iter().flat_map(|(path, item)| of(path, item));
    names
        .map(|(method, path)| (method.clone(), path.clone(), &document["paths"][path][method]))
        .collect()
}

#[tokio::test]
async fn served_and_described_routes_are_the_same() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    let described: BTreeSet<_> = operations(&document)
        .iter()
        .map(|(m, p, _)| (m.clone(), p.clone()))
        .collect();
    let served: BTreeSet<_> = SERVED.iter().map(|(m, p)| ((*m).to_owned(), (*p).to_owned())).collect();
    assert_eq!(described, served);
    for (method, path) in described {
        let path = path.replace("{t}", "a@1").replace(['{', '}'], "");
        let answer = daemon.request(&method.to_uppercase(), &path).send().await.unwrap();
        let code = answer.status().as_u16();
        assert!(code != 405, "{method} {path} is not served");
        if code == 404 {
            assert!(
                !answer.text().await.unwrap().contains("no_such_route"),
                "{method} {path} is not served"
            );
        }
    }
}

/// Generators of clients name a function after each.
#[tokio::test]
async fn operation_ids_are_unique() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    let all = operations(&document);
    let ids: BTreeSet<_> = all
        .iter()
        .map(|(.., operation)| operation["operationId"].as_str())
        .collect();
    assert_eq!(ids.len(), all.len(), "{ids:?}");
    assert!(
        ids.contains(&Some("members_join")) && ids.contains(&Some("rosters_providers")),
        "{ids:?}"
    );
}

/// What the routes do not say of themselves: the names in their paths, and the header of what changes something.
#[tokio::test]
async fn common_parameters_are_described() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    let of = |method: &str, path: &str| -> Vec<String> {
        let parameters = document["paths"][path][method]["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let told = |one: &Value| format!("{} {} {}", one["in"], one["name"], one["description"]).replace('"', "");
        parameters.iter().map(told).collect()
    };
    let key = "/v1/groups/{g}/registries/{r}/claims/{key}";
    let names = ["path g The group", "path r The registry", "path key The key"];
    let not_after = "header Tenure-Not-After Store time after which the call must not take effect";
    assert_eq!(of("get", key), names);
    assert_eq!(of("put", key), [&names[..], &[not_after]].concat());
    assert_eq!(
        of("put", "/v1/groups/{g}/tenures/{t}/beat"),
        ["path g The group", "path t The tenure"]
    );
    assert_eq!(
        of("post", "/v1/rosters/{r}/reserve"),
        [
            "path r The roster",
            "header Tenure-Not-After Store time after which the call must not begin"
        ]
    );
    assert_eq!(of("get", "/v1/now"), [""; 0]);
}

#[tokio::test]
async fn every_route_describes_parameters_bodies_and_errors() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    for (method, path, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(operation["summary"].is_string(), "{at} has no summary");
        let in_path = path.matches('{').count();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let described = parameters.iter().filter(|p| p["in"] == "path").count();
        assert_eq!(described, in_path, "{at}: {parameters:?}");
        let responses = operation["responses"].as_object().unwrap();
        if path.starts_with("/v1/groups") || path.starts_with("/v1/rosters") {
            for status in ["422", "500", "503"] {
                let schema = &responses[status]["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Problem", "{at} {status}");
            }
        }
        if matches!(method.as_str(), "patch" | "post" | "put") {
            assert!(
                operation["requestBody"]["content"]["application/json"].is_object(),
                "{at} has no body"
            );
            assert!(
                responses.contains_key("400") && responses.contains_key("413") && responses.contains_key("415"),
                "{at}"
            );
        }
    }
}

#[tokio::test]
async fn every_referenced_schema_exists() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is not described");
    }
    for name in [
        "Problem",
        "EventAnswer",
        "JoinRequest",
        "JoinAnswer",
        "BeatsAnswer",
        "AcquireAnswer",
        "Lease",
        "Target",
        "Session",
        "AttachAnswer",
        "Orphans",
        "Provider",
        "AvailableAnswer",
        "Engagement",
        "ServerStatus",
    ] {
        assert!(schemas.contains_key(name), "{name} is not described");
    }
    assert_eq!(tenure_server::document(), daemon.get("/openapi.json").await.text);
}

/// A holder or an owner is a member, and stands beside the tenure that it holds under.
#[tokio::test]
async fn holders_and_owners_have_one_shape() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut with_holder = Vec::new();
    for (name, schema) in schemas {
        let Some(fields) = schema["properties"].as_object() else {
            continue;
        };
        assert!(!fields.contains_key("held_by"), "{name}: a holder is called holder");
        // Events are answered as an `EventAnswer`, which adds the members.
        if fields.contains_key("from") && name != "Event" {
            assert!(fields.contains_key("from_member"), "{name} names no former member");
        }
        if fields.contains_key("holder") || fields.contains_key("owner") {
            assert!(fields.contains_key("tenure"), "{name} names no tenure");
            with_holder.push(name.as_str());
        }
    }
    let event = schemas["EventAnswer"].to_string();
    assert!(
        event.contains("\"member\"") && event.contains("\"from_member\""),
        "{event}"
    );
    for name in [
        "Lease",
        "Claim",
        "Target",
        "Problem",
        "AcquireResult",
        "ClaimResult",
        "DetachResult",
    ] {
        assert!(with_holder.contains(&name), "{name} is not among {with_holder:?}");
    }
}
