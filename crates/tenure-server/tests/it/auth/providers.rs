//! Tokens of providers beside those of the daemon.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use tenure_server::Settings;
use tenure_server::auth::Scope;
use tenure_server::jwt::{JwtSecret, JwtSettings, KeySource, Verifier};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::common::{Answer, Daemon};
use crate::token_server::{SOON, Tokens, ask, serve};

pub const KEY: &[u8] = b"a secret that is long enough for HS256, and for nothing else";

pub fn verifier() -> Arc<Verifier> {
    Verifier::new(JwtSettings::with_secret(KeySource::Secret(JwtSecret::new(KEY)))).unwrap()
}

pub fn signed(provider: &str, key: &[u8]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"sub": provider, "roster": ["other", "r"], "iat": now, "exp": now + 600});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(key)).unwrap()
}

#[tokio::test]
async fn a_providers_token_reaches_its_own_routes_and_nothing_else() {
    let mut tokens = Tokens::none();
    let desk = tokens.add("desk", &Scope::ALL, &[], &[]);
    let daemon = serve(tokens.settings(), Some(verifier())).await;
    let (ana, forged) = (
        signed("ana", KEY),
        signed("ana", b"another secret that is long enough for HS256!"),
    );
    for provider in ["ana", "ben"] {
        let path = format!("/v1/rosters/r/providers/{provider}");
        assert_eq!(ask(&daemon, "PUT", &path, Some(desk.text())).await.status, 200);
    }
    for what in ["online", "heartbeat", "offline"] {
        let path = format!("/v1/rosters/r/providers/ana/{what}");
        let code = |answer: Answer| (answer.status.as_u16(), answer.code());
        assert_eq!(
            code(ask(&daemon, "POST", &path, None).await),
            (401, "token_missing".to_owned())
        );
        let answer = ask(&daemon, "POST", &path, Some(&forged)).await;
        assert_eq!(code(answer), (401, "token_signature".to_owned()));
        let answer = ask(&daemon, "POST", &path, Some(&signed("ben", KEY))).await;
        assert_eq!(code(answer), (403, "wrong_provider".to_owned()));
        let answer = ask(&daemon, "POST", &path, Some(desk.text())).await;
        assert_eq!(
            code(answer),
            (403, "forbidden".to_owned()),
            "{what} is the provider's own"
        );
        assert_eq!(ask(&daemon, "POST", &path, Some(&ana)).await.status, 200, "{what}");
    }
    for (method, path) in [
        ("GET", "/v1/rosters/r/providers/ana"),
        ("POST", "/v1/rosters/r/providers/ana/deactivate"),
        ("GET", "/v1/groups/roster.r/members"),
        ("POST", "/v1/groups/roster.r/members"),
        ("GET", "/v1/status"),
        ("GET", "/metrics"),
        ("POST", "/v1/rosters/r/reserve"),
    ] {
        let answer = ask(&daemon, method, path, Some(&ana)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (403, "not_for_providers"),
            "{path}"
        );
        let answer = ask(&daemon, method, path, Some(&forged)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (401, "unauthenticated"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn without_keys_for_providers_a_token_that_lives_does() {
    let mut tokens = Tokens::none();
    let desk = tokens.add("desk", &[Scope::Write, Scope::Beat], &[], &["r"]);
    let other = tokens.add("other", &[Scope::Beat], &[], &["s"]);
    let daemon = tokens.serve().await;
    let path = "/v1/rosters/r/providers/ana";
    assert_eq!(ask(&daemon, "PUT", path, Some(desk.text())).await.status, 200);
    let online = format!("{path}/online");
    assert_eq!(ask(&daemon, "POST", &online, Some(other.text())).await.status, 403);
    assert_eq!(ask(&daemon, "POST", &online, None).await.status, 401);
    assert_eq!(ask(&daemon, "POST", &online, Some(desk.text())).await.status, 200);
    let member = ask(&daemon, "GET", "/v1/groups/roster.r/members/ana", Some(desk.text())).await;
    let tenure = member.json()["tenure"].as_str().unwrap().to_owned();
    let tenure = format!("/v1/groups/roster.r/tenures/{tenure}");
    let beat = ask(&daemon, "PUT", &format!("{tenure}/beat"), Some(desk.text())).await;
    assert_eq!(beat.status, 200);
    assert_eq!(ask(&daemon, "DELETE", &tenure, Some(desk.text())).await.status, 204);
}

/// Puts a provider down and takes it online; answers its tenure.
async fn online(daemon: &Daemon, provider: &str, desk: Option<&str>) -> String {
    let path = format!("/v1/rosters/r/providers/{provider}");
    assert_eq!(ask(daemon, "PUT", &path, desk).await.status, 200);
    let own = signed(provider, KEY);
    let answer = ask(daemon, "POST", &format!("{path}/online"), Some(&own)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let member = ask(daemon, "GET", &format!("/v1/groups/roster.r/members/{provider}"), desk).await;
    member.json()["tenure"].as_str().expect("a tenure").to_owned()
}

async fn is_alive(daemon: &Daemon, provider: &str, desk: Option<&str>) -> bool {
    let path = format!("/v1/groups/roster.r/members/{provider}");
    ask(daemon, "GET", &path, desk).await.status == 200
}

/// What a member does in its group: the part of a life that a provider's own routes are for.
fn life(tenure: &str) -> Vec<(&'static str, String)> {
    let at = |group: &str, rest: &str| format!("/v1/groups/{group}/{rest}");
    vec![
        ("PUT", at("roster.r", &format!("tenures/{tenure}/beat"))),
        ("PUT", at("%72oster.r", &format!("tenures/{tenure}/beat"))),
        ("POST", at("roster.r", "beats")),
        ("POST", at("roster.r", "members")),
        ("PUT", at("roster.r", "registries/x/claims/y")),
        ("POST", at("roster.r", "leases/l/acquire")),
        ("PUT", at("roster.r", "sessions/s")),
        ("DELETE", at("roster.r", &format!("tenures/{tenure}"))),
        ("DELETE", at("roster%2er", &format!("tenures/{tenure}?expel=false"))),
    ]
}

#[tokio::test]
async fn roster_group_refuses_tokens_other_than_the_providers() {
    let mut tokens = Tokens::none();
    let beat = tokens.add("beat", &[Scope::Beat], &[], &["r"]);
    let everywhere = tokens.add("everywhere", &Scope::ALL, &[], &[]);
    let operator = tokens.add("operator", &[Scope::Operate], &[], &["r"]);
    let daemon = serve(tokens.settings(), Some(verifier())).await;
    let desk = Some(everywhere.text());
    let tenure = online(&daemon, "ana", desk).await;
    for secret in [&beat, &everywhere] {
        for (method, path) in life(&tenure) {
            let answer = ask(&daemon, method, &path, Some(secret.text())).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (403, "forbidden"),
                "{method} {path}"
            );
            assert!(answer.text.contains("provider's own token"), "{}", answer.text);
        }
        assert!(is_alive(&daemon, "ana", desk).await);
    }
    let member = "/v1/groups/roster.r/members/ana";
    assert_eq!(ask(&daemon, "GET", member, Some(beat.text())).await.status, 200);
    // Elsewhere it lives, and an operator may end what it likes.
    let other = ask(&daemon, "DELETE", "/v1/groups/roster/tenures/ana@1", desk).await;
    assert_eq!(other.status, 204);
    let expel = format!("/v1/groups/roster.r/tenures/{tenure}?expel=true");
    assert_eq!(ask(&daemon, "DELETE", &expel, Some(beat.text())).await.status, 403);
    assert_eq!(ask(&daemon, "DELETE", &expel, Some(operator.text())).await.status, 204);
    assert!(!is_alive(&daemon, "ana", desk).await);
}

#[tokio::test]
async fn provider_needs_its_token_on_a_daemon_without_tokens() {
    let daemon = serve(Settings::default(), Some(verifier())).await;
    let tenure = online(&daemon, "ana", None).await;
    for (method, path) in life(&tenure) {
        let answer = ask(&daemon, method, &path, None).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (403, "forbidden"),
            "{method} {path}"
        );
    }
    assert!(is_alive(&daemon, "ana", None).await);
    let expel = format!("/v1/groups/roster.r/tenures/{tenure}?expel=true");
    assert_eq!(ask(&daemon, "DELETE", &expel, None).await.status, 204);
}

#[tokio::test]
async fn provider_token_reads_only_on_a_daemon_without_tokens() {
    let daemon = serve(Settings::default(), Some(verifier())).await;
    let tenure = online(&daemon, "ana", None).await;
    let ben = signed("ben", KEY);
    let expel = format!("/v1/groups/roster.r/tenures/{tenure}?expel=true");
    for (method, path) in [
        ("POST", "/v1/rosters/r/engagements"),
        ("PATCH", "/v1/rosters/r/engagements/e"),
        ("POST", "/v1/rosters/r/reserve"),
        ("PUT", "/v1/rosters/r/providers/ben"),
        ("POST", "/v1/rosters/r/providers/ana/deactivate"),
        ("PATCH", "/v1/rosters/r"),
        ("POST", "/v1/groups/g/members"),
        ("POST", "/v1/groups/g/sweep"),
        ("PUT", "/v1/groups/g/targets/t"),
        ("DELETE", &expel),
    ] {
        let answer = ask(&daemon, method, path, Some(&ben)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (403, "not_for_providers"),
            "{method} {path}"
        );
    }
    assert!(is_alive(&daemon, "ana", Some(&ben)).await, "reading needs nothing");
    let forged = signed("ben", b"another secret that is long enough for HS256!");
    let sweep = ask(&daemon, "POST", "/v1/groups/g/sweep", Some(&forged)).await;
    assert_eq!(sweep.status, 200, "an unknown token is ignored");
}

/// Announces a body, sends none, and answers the first line of the answer.
async fn silent(daemon: &Daemon, token: Option<&str>) -> (BufReader<TcpStream>, String) {
    let mut socket = TcpStream::connect(daemon.server.addr()).await.unwrap();
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!(
        "POST /v1/rosters/r/providers/ana/heartbeat HTTP/1.1\r\nHost: {}\r\n{}Content-Length: 10\r\n\r\n",
        daemon.server.addr(),
        shown.unwrap_or_default()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut socket, mut line) = (BufReader::new(socket), String::new());
    let read = tokio::time::timeout(SOON, socket.read_line(&mut line)).await;
    read.expect("an answer in time").unwrap();
    (socket, line)
}

#[tokio::test]
async fn request_without_valid_token_takes_no_permit() {
    let mut tokens = Tokens::none();
    let desk = tokens.add("desk", &[Scope::Read], &[], &[]);
    for settings in [tokens.settings(), Settings::default()] {
        let settings = Settings {
            max_requests: 1,
            ..settings
        };
        let daemon = serve(settings, Some(verifier())).await;
        let forged = signed("ana", b"another secret that is long enough for HS256!");
        let mut held = Vec::new();
        for token in [None, Some("nonsense"), Some(forged.as_str())] {
            let (socket, line) = silent(&daemon, token).await;
            assert!(line.starts_with("HTTP/1.1 401"), "{token:?}: {line}");
            held.push(socket);
        }
        let answer = ask(&daemon, "GET", "/v1/rosters", Some(desk.text())).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
