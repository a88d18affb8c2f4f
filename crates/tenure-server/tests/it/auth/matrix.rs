//! Every route of the document, with every scope, in the right group and in a wrong one.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_server::auth::{Scope, Secret};

use crate::common::{Answer, Daemon};
use crate::token_server::{Tokens, ask};

/// What each route takes, written down a second time: changing a scope, or adding a route, is a decision and not a slip.
/// `-` needs no token, `+` needs an unrestricted token.
const WANTED: &str = "
    get / -
    get /livez -
    get /metrics read +
    get /openapi.json -
    get /readyz -
    get /v1/doctor read +
    get /v1/groups read
    get /v1/groups/{g} read
    post /v1/groups/{g}/beats beat
    get /v1/groups/{g}/events read
    get /v1/groups/{g}/leases read
    post /v1/groups/{g}/leases-acquire beat
    post /v1/groups/{g}/leases-release beat
    delete /v1/groups/{g}/leases/{l} operate
    get /v1/groups/{g}/leases/{l} read beat
    post /v1/groups/{g}/leases/{l}/acquire beat
    post /v1/groups/{g}/leases/{l}/release beat
    get /v1/groups/{g}/members read
    post /v1/groups/{g}/members beat
    get /v1/groups/{g}/members/{m} read beat
    get /v1/groups/{g}/registries/{r}/claims read
    post /v1/groups/{g}/registries/{r}/claims beat
    delete /v1/groups/{g}/registries/{r}/claims/{key} beat
    get /v1/groups/{g}/registries/{r}/claims/{key} read beat
    put /v1/groups/{g}/registries/{r}/claims/{key} beat
    get /v1/groups/{g}/sessions read
    post /v1/groups/{g}/sessions-attach beat
    post /v1/groups/{g}/sessions-detach beat
    get /v1/groups/{g}/sessions-orphans read
    get /v1/groups/{g}/sessions-stats read
    delete /v1/groups/{g}/sessions/{s} beat
    get /v1/groups/{g}/sessions/{s} read beat
    patch /v1/groups/{g}/sessions/{s} beat
    put /v1/groups/{g}/sessions/{s} beat
    delete /v1/groups/{g}/sessions/{s}/connections/{c} beat
    post /v1/groups/{g}/settle operate
    post /v1/groups/{g}/sweep operate
    get /v1/groups/{g}/targets read
    delete /v1/groups/{g}/targets/{t} write
    get /v1/groups/{g}/targets/{t} read beat
    put /v1/groups/{g}/targets/{t} write
    delete /v1/groups/{g}/tenures/{t} beat operate
    put /v1/groups/{g}/tenures/{t}/beat beat
    put /v1/groups/{g}/tenures/{t}/labels beat
    get /v1/now read beat write operate
    get /v1/rosters read
    get /v1/rosters/{r} read
    patch /v1/rosters/{r} operate
    get /v1/rosters/{r}/availability read
    get /v1/rosters/{r}/available read
    post /v1/rosters/{r}/engagements write
    get /v1/rosters/{r}/engagements/{e} read write
    patch /v1/rosters/{r}/engagements/{e} write
    get /v1/rosters/{r}/log read
    get /v1/rosters/{r}/providers read
    delete /v1/rosters/{r}/providers/{p} operate
    get /v1/rosters/{r}/providers/{p} read beat
    put /v1/rosters/{r}/providers/{p} write
    post /v1/rosters/{r}/providers/{p}/activate operate
    post /v1/rosters/{r}/providers/{p}/deactivate operate
    post /v1/rosters/{r}/providers/{p}/heartbeat beat
    post /v1/rosters/{r}/providers/{p}/offline beat
    post /v1/rosters/{r}/providers/{p}/online beat
    post /v1/rosters/{r}/reserve write
    get /v1/rosters/{r}/stats read
    post /v1/settle operate +
    get /v1/hot-store read +
    put /v1/hot-store operate +
    get /v1/status read
";

/// What one route takes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    open: bool,
    everywhere: bool,
    scopes: Vec<Scope>,
}

type Routes = BTreeMap<(String, String), Wanted>;

fn wanted() -> Routes {
    let line = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let route = (words.next()?, words.next()?);
        let mut wanted = Wanted::default();
        for word in words {
            match word.as_str() {
                "-" => wanted.open = true,
                "+" => wanted.everywhere = true,
                scope => wanted.scopes.push(scope.parse().unwrap()),
            }
        }
        Some((route, wanted))
    };
    WANTED.lines().filter_map(line).collect()
}

/// What the document says.
fn declared(document: &Value) -> Routes {
    let mut routes = Routes::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let security = operation["security"].as_array();
            let security = security.unwrap_or_else(|| panic!("{at} declares no scope"));
            let mut wanted = Wanted::default();
            for alternative in security {
                wanted.open |= alternative.as_object().unwrap().is_empty();
                for role in alternative["token"].as_array().into_iter().flatten() {
                    match role.as_str().unwrap() {
                        "everywhere" => wanted.everywhere = true,
                        scope => wanted.scopes.push(scope.parse().unwrap()),
                    }
                }
            }
            assert!(wanted.open || !wanted.scopes.is_empty(), "{at} declares no scope");
            routes.insert((method.clone(), path.clone()), wanted);
        }
    }
    routes
}

#[tokio::test]
async fn every_route_declares_the_scope_it_was_meant_to_have() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    assert_eq!(declared(&document), wanted());
    for scheme in ["token", "provider"] {
        let scheme = &document["components"]["securitySchemes"][scheme];
        assert_eq!((&scheme["type"], &scheme["scheme"]), (&"http".into(), &"bearer".into()));
    }
    let own: Vec<_> = wanted()
        .into_keys()
        .filter(|route| takes_providers(&document, route))
        .collect();
    let ends = ["heartbeat", "offline", "online"].map(|what| format!("/v1/rosters/{{r}}/providers/{{p}}/{what}"));
    // Their handlers check the provider: without that, each provider could act for all others.
    assert_eq!(own, ends.map(|path| ("post".to_owned(), path)));
    for ((method, path), wanted) in wanted() {
        let responses = document["paths"][&path][&method]["responses"].as_object().unwrap();
        for status in ["401", "403", "429"] {
            assert_eq!(responses.contains_key(status), !wanted.open, "{method} {path} {status}");
        }
    }
}

fn takes_providers(document: &Value, (method, path): &(String, String)) -> bool {
    let security = document["paths"][path][method]["security"].as_array().unwrap();
    security.iter().any(|alternative| alternative.get("provider").is_some())
}

/// A token for each scope, and what it is for.
struct Cast(Vec<(Scope, Secret)>);

impl Cast {
    fn of(tokens: &mut Tokens, kind: &str, groups: &[&str], rosters: &[&str]) -> Self {
        let cast = Scope::ALL.map(|scope| {
            let secret = tokens.add(&format!("{kind}-{scope}"), &[scope], groups, rosters);
            (scope, secret)
        });
        Self(cast.into())
    }
}

async fn knock(daemon: &Daemon, (method, path): &(String, String), token: Option<&str>) -> (String, Answer) {
    // What the paths are about lies in the group `g` and in the roster `r`.
    let path = path.replace("{t}", "a@1").replace(['{', '}'], "");
    let answer = ask(daemon, &method.to_uppercase(), &path, token).await;
    (format!("{method} {path}"), answer)
}

#[track_caller]
fn is_let_in(at: &str, who: &str, answer: &Answer) {
    let status = answer.status.as_u16();
    assert!(
        ![401, 403, 429].contains(&status),
        "{who} is refused at {at}: {answer:?}"
    );
}

#[track_caller]
fn is_refused(at: &str, who: &str, answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status.as_u16(), status, "{who} at {at}: {answer:?}");
    assert_eq!(answer.code(), code, "{who} at {at}");
    assert!(answer.header("www-authenticate").starts_with("Bearer"), "{who} at {at}");
}

#[tokio::test]
async fn routes_refuse_missing_and_unknown_tokens() {
    let mut tokens = Tokens::none();
    tokens.add("full", &Scope::ALL, &[], &[]);
    let daemon = tokens.serve().await;
    let unknown = Secret::draw().unwrap();
    for (route, wanted) in wanted() {
        for shown in [None, Some(unknown.text()), Some("eyJhbGciOiJub25lIn0.e30."), Some("x")] {
            let (at, answer) = knock(&daemon, &route, shown).await;
            if wanted.open {
                is_let_in(&at, "a stranger", &answer);
            } else {
                is_refused(&at, "a stranger", &answer, 401, "unauthenticated");
            }
        }
    }
}

#[tokio::test]
async fn each_scope_opens_its_routes_only() {
    let mut tokens = Tokens::none();
    let everywhere = Cast::of(&mut tokens, "everywhere", &[], &[]);
    let here = Cast::of(&mut tokens, "here", &["g", "other"], &["r"]);
    let by_beginning = Cast::of(&mut tokens, "by-beginning", &["*"], &["r*"]);
    let elsewhere = Cast::of(&mut tokens, "elsewhere", &["g2", "G", "r"], &["r2", "g"]);
    let daemon = tokens.serve().await;
    for (route, wanted) in wanted() {
        for (cast, kind) in [
            (&everywhere, "everywhere"),
            (&here, "here"),
            (&by_beginning, "by-beginning"),
            (&elsewhere, "elsewhere"),
        ] {
            for (scope, secret) in &cast.0 {
                let who = format!("{kind}-{scope}");
                let (at, answer) = knock(&daemon, &route, Some(secret.text())).await;
                let has_scope = wanted.open || wanted.scopes.contains(scope);
                let is_about = route.1.contains("/{g}") || route.1.starts_with("/v1/rosters/{r}");
                let fits = match kind {
                    "everywhere" => true,
                    "elsewhere" => !is_about && !wanted.everywhere,
                    _ => !wanted.everywhere,
                };
                // Operating on a tenure is expelling; without that it is leaving, which takes `beat`.
                let leaves = route.1.ends_with("/tenures/{t}") && *scope == Scope::Operate;
                if wanted.open || (has_scope && fits && !leaves) {
                    is_let_in(&at, &who, &answer);
                } else {
                    is_refused(&at, &who, &answer, 403, "forbidden");
                    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
                    assert!(detail.contains(&who), "{detail}");
                    assert!(!detail.contains(secret.text()), "{detail}");
                }
            }
        }
    }
}

#[tokio::test]
async fn expelling_takes_the_scope_of_an_operator() {
    let mut tokens = Tokens::none();
    let cast = Cast::of(&mut tokens, "t", &["g"], &[]);
    let daemon = tokens.serve().await;
    for (scope, secret) in &cast.0 {
        let answer = ask(
            &daemon,
            "DELETE",
            "/v1/groups/g/tenures/a@1?expel=true",
            Some(secret.text()),
        )
        .await;
        if *scope == Scope::Operate {
            assert_eq!(answer.status, 204);
        } else {
            is_refused("expel", scope.as_str(), &answer, 403, "forbidden");
            assert!(answer.text.contains("operate"), "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_name_is_the_same_however_it_is_written() {
    let mut tokens = Tokens::none();
    let secret = tokens.add("one", &[Scope::Read], &["g", "team-*"], &["r"]);
    let daemon = tokens.serve().await;
    for (path, status) in [
        ("/v1/groups/%67", 200),
        ("/v1/groups/te%61m-x", 200),
        ("/v1/groups/h", 403),
        ("/v1/groups/%68", 403),
        ("/v1/groups/%2567", 403),
        ("/v1/groups/team%2f..%2fother", 403),
        ("/v1/groups/roster.r", 200),
        ("/v1/groups/%72oster.r", 200),
        ("/v1/groups/roster.s", 403),
        ("/v1/groups/team-%ff", 422),
        ("/v1/groups//members", 403),
        ("/v1/rosters/%72", 404),
        ("/v1/rosters/%73", 403),
    ] {
        let answer = ask(&daemon, "GET", path, Some(secret.text())).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
    }
}
