//! Tokens of providers: needed once keys are configured, theirs alone, void after a deactivation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tenure_server::jwt::{JwtSecret, JwtSettings, KeySource, Verifier};

use crate::common::Answer;
use crate::roster::server::{R, RosterServer};

const SECRET: &[u8] = b"a secret that is long enough for HS256, and for nothing else";
/// What a provider does in its own name.
const OWN: [&str; 3] = ["online", "heartbeat", "offline"];

async fn guarded() -> RosterServer {
    guarded_with(Duration::ZERO).await
}

async fn guarded_with(leeway: Duration) -> RosterServer {
    let mut settings = JwtSettings::with_secret(KeySource::Secret(JwtSecret::new(SECRET)));
    settings.required = vec!["role=provider".parse().unwrap()];
    settings.leeway = leeway;
    let server = RosterServer::with(Some(Verifier::new(settings).unwrap())).await;
    for provider in ["ana", "ben"] {
        server.put(provider, 1).await;
    }
    server
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn signed(claims: &Value, secret: &[u8]) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn claims(provider: &str, issued: u64) -> Value {
    json!({"sub": provider, "roster": "support", "role": "provider", "iat": issued, "exp": now() + 600})
}

fn token(provider: &str) -> String {
    signed(&claims(provider, now()), SECRET)
}

async fn act(server: &RosterServer, what: &str, token: &str) -> Answer {
    let request = server.daemon.request("POST", &format!("{R}/providers/ana/{what}"));
    Answer::read(request.bearer_auth(token).send().await.unwrap()).await
}

#[tokio::test]
async fn a_provider_needs_its_own_token_for_its_own_routes() {
    let server = guarded().await;
    let good = token("ana");
    for what in OWN {
        let none = server.post(&format!("/providers/ana/{what}")).await;
        assert_eq!(
            (none.status.as_u16(), none.code().as_str()),
            (401, "token_missing"),
            "{what}"
        );
        assert_eq!(none.header("www-authenticate"), "Bearer");
        let others = act(&server, what, &token("ben")).await;
        assert_eq!(
            (others.status.as_u16(), others.code().as_str()),
            (403, "wrong_provider"),
            "{what}"
        );
        assert_eq!(act(&server, what, &good).await.status, 200, "{what}");
    }
    assert_eq!(server.get("/available").await.status, 200, "reading needs none");
}

/// A provider of the same name in another roster may be another person.
#[tokio::test]
async fn a_token_is_valid_only_in_the_rosters_it_names() {
    let server = guarded().await;
    let named = |rosters: Value| {
        let mut claims = claims("ana", now());
        claims["roster"] = rosters;
        signed(&claims, SECRET)
    };
    for (rosters, status) in [
        (json!("support"), 200),
        (json!(["sales", "support"]), 200),
        (json!("sales"), 403),
        (json!([]), 403),
        (json!(null), 403),
    ] {
        let answer = act(&server, "online", &named(rosters.clone())).await;
        assert_eq!(answer.status, status, "{rosters}");
        if status == 403 {
            assert_eq!(answer.code(), "wrong_provider");
        }
    }
}

#[tokio::test]
async fn forged_and_expired_tokens_are_refused() {
    let server = guarded().await;
    let good = token("ana");
    let (head, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let forged = signed(
        &claims("ben", now()),
        b"another secret that is just as long as the right one is",
    );
    let (_, forged_rest) = forged.split_once('.').unwrap();
    let forged_payload = forged_rest.split_once('.').unwrap().0;
    let without = |name: &str| {
        let mut claims = claims("ana", now());
        claims.as_object_mut().unwrap().remove(name);
        signed(&claims, SECRET)
    };
    let mut expired = claims("ana", now() - 600);
    expired["exp"] = json!(now() - 10);
    for (token, code) in [
        ("nonsense".to_owned(), "token_malformed"),
        (forged.clone(), "token_signature"),
        (format!("{head}.{forged_payload}.{signature}"), "token_signature"),
        (format!("{head}.{payload}.AAAA"), "token_signature"),
        (signed(&expired, SECRET), "token_expired"),
        (without("role"), "token_claim"),
        (without("exp"), "token_without_expiry"),
        (without("iat"), "token_without_issue_time"),
        (without("sub"), "token_subject"),
    ] {
        for what in OWN {
            let refused = act(&server, what, &token).await;
            assert_eq!(
                (refused.status.as_u16(), refused.code().as_str()),
                (401, code),
                "{what}"
            );
            assert!(
                refused.header("www-authenticate").contains("invalid_token"),
                "{refused:?}"
            );
            assert!(!refused.text.contains(payload), "a token is never repeated");
        }
    }
    assert_eq!(server.get("/providers/ana").await.json()["online"], false);
}

#[tokio::test]
async fn deactivation_revokes_earlier_tokens_for_good() {
    let server = guarded().await;
    let old = signed(&claims("ana", now() - 5), SECRET);
    assert_eq!(act(&server, "online", &old).await.status, 200);
    assert_eq!(server.post("/providers/ana/deactivate").await.status, 200);
    for what in OWN {
        let refused = act(&server, what, &old).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (403, "provider_deactivated"),
            "{what}"
        );
    }
    assert_eq!(server.post("/providers/ana/activate").await.status, 200);
    for what in OWN {
        let refused = act(&server, what, &old).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (401, "token_revoked"),
            "{what}"
        );
    }
    // A token counts as issued after the deactivation only from the next whole second on.
    tenure_testkit::wait::until_async("a new token is taken", crate::common::PATIENCE, || async {
        act(&server, "online", &token("ana")).await.status == 200
    })
    .await;
    assert_eq!(act(&server, "heartbeat", &token("ana")).await.status, 200);
}

#[tokio::test]
async fn refusal_after_reactivation_says_when_a_new_token_is_taken() {
    let server = guarded_with(Duration::from_secs(2)).await;
    let old = signed(&claims("ana", now() - 60), SECRET);
    for what in ["deactivate", "activate"] {
        assert_eq!(server.post(&format!("/providers/ana/{what}")).await.status, 200);
    }
    let refused = act(&server, "online", &token("ana")).await;
    let asked_at = SystemTime::now();
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (401, "token_revoked")
    );
    assert!(
        refused.text.contains("may have been issued before"),
        "it was not: {refused:?}"
    );
    let wait = refused.json()["retry_after_ms"].as_u64().expect("a time to try again");
    assert!((1_000..=3_001).contains(&wait), "{wait} ms");
    for what in ["heartbeat", "offline"] {
        let refused = act(&server, what, &token("ana")).await;
        assert!(refused.json()["retry_after_ms"].is_u64(), "{what}: {refused:?}");
    }
    let refused = act(&server, "online", &old).await;
    assert!(refused.text.contains("was issued before"), "{refused:?}");

    let due = asked_at + Duration::from_millis(wait);
    tenure_testkit::wait::until_async("the time to try again", crate::common::PATIENCE, || async {
        SystemTime::now() >= due
    })
    .await;
    assert_eq!(act(&server, "online", &token("ana")).await.status, 200);
    let refused = act(&server, "online", &old).await;
    assert!(
        refused.json()["retry_after_ms"].is_null(),
        "a new token is accepted immediately: {refused:?}"
    );
}

#[tokio::test]
async fn operator_routes_refuse_providers() {
    let server = guarded().await;
    let mine = token("ana");
    let as_provider = async |method: &str, path: &str, body: Value| {
        let request = server.daemon.request(method, &format!("{R}{path}")).bearer_auth(&mine);
        Answer::read(request.json(&body).send().await.unwrap()).await
    };
    for (method, path) in [
        ("PUT", "/providers/ana"),
        ("DELETE", "/providers/ana"),
        ("POST", "/providers/ana/activate"),
        ("POST", "/providers/ben/deactivate"),
        ("PATCH", ""),
    ] {
        let refused = as_provider(method, path, json!({})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (403, "not_for_providers"),
            "{method} {path}"
        );
    }
    assert_eq!(server.get("/providers/ben").await.json()["active"], true);
}

#[tokio::test]
async fn status_tells_that_tokens_are_asked_for() {
    let server = guarded().await;
    let status = server.daemon.get("/v1/status").await;
    assert_eq!(status.json()["rosters"]["tokens"], json!({"keys": 1}));
    assert!(!status.text.contains("secret that is long"));
}
