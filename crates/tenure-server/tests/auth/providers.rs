//! Tokens of providers beside those of the daemon.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use tenure_server::auth::Scope;
use tenure_server::jwt::{JwtSettings, KeySource, Secret, Verifier};

use crate::office::{Tokens, ask, serve};

const KEY: &[u8] = b"a secret that is long enough for HS256, and for nothing else";

fn verifier() -> Arc<Verifier> {
    Verifier::new(JwtSettings::with_secret(KeySource::Secret(Secret::new(KEY)))).unwrap()
}

fn signed(provider: &str, key: &[u8]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"sub": provider, "iat": now, "exp": now + 600});
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
        let code = |answer: crate::common::Answer| (answer.status.as_u16(), answer.code());
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
}
