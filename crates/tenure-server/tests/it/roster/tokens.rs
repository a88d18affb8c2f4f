//! Tokens of providers: needed once keys are configured, theirs alone, void after a deactivation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tenure_server::jwt::{JwtSettings, KeySource, Secret, Verifier};

use crate::common::Answer;
use crate::roster::desk::{Desk, R};

const SECRET: &[u8] = b"a secret that is long enough for HS256, and for nothing else";
/// What a provider does in its own name.
const OWN: [&str; 3] = ["online", "heartbeat", "offline"];

async fn guarded() -> Desk {
    guarded_with(Duration::ZERO).await
}

async fn guarded_with(leeway: Duration) -> Desk {
    let mut settings = JwtSettings::with_secret(KeySource::Secret(Secret::new(SECRET)));
    settings.required = vec!["role=provider".parse().unwrap()];
    settings.leeway = leeway;
    let desk = Desk::with(Some(Verifier::new(settings).unwrap())).await;
    for provider in ["ana", "ben"] {
        desk.put(provider, 1).await;
    }
    desk
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn signed(claims: &Value, secret: &[u8]) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn claims(provider: &str, issued: u64) -> Value {
    json!({"sub": provider, "role": "provider", "iat": issued, "exp": now() + 600})
}

fn token(provider: &str) -> String {
    signed(&claims(provider, now()), SECRET)
}

async fn act(desk: &Desk, what: &str, token: &str) -> Answer {
    let request = desk.daemon.request("POST", &format!("{R}/providers/ana/{what}"));
    Answer::read(request.bearer_auth(token).send().await.unwrap()).await
}

#[tokio::test]
async fn a_provider_needs_its_own_token_for_its_own_routes() {
    let desk = guarded().await;
    let good = token("ana");
    for what in OWN {
        let none = desk.post(&format!("/providers/ana/{what}")).await;
        assert_eq!(
            (none.status.as_u16(), none.code().as_str()),
            (401, "token_missing"),
            "{what}"
        );
        assert_eq!(none.header("www-authenticate"), "Bearer");
        let others = act(&desk, what, &token("ben")).await;
        assert_eq!(
            (others.status.as_u16(), others.code().as_str()),
            (403, "wrong_provider"),
            "{what}"
        );
        assert_eq!(act(&desk, what, &good).await.status, 200, "{what}");
    }
    assert_eq!(desk.get("/available").await.status, 200, "reading needs none");
}

#[tokio::test]
async fn a_token_that_was_tampered_with_or_has_had_its_time_is_refused() {
    let desk = guarded().await;
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
            let refused = act(&desk, what, &token).await;
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
    assert_eq!(desk.get("/providers/ana").await.json()["online"], false);
}

#[tokio::test]
async fn deactivating_voids_the_tokens_from_before_also_after_activating_again() {
    let desk = guarded().await;
    let old = signed(&claims("ana", now() - 5), SECRET);
    assert_eq!(act(&desk, "online", &old).await.status, 200);
    assert_eq!(desk.post("/providers/ana/deactivate").await.status, 200);
    for what in OWN {
        let refused = act(&desk, what, &old).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (403, "provider_deactivated"),
            "{what}"
        );
    }
    assert_eq!(desk.post("/providers/ana/activate").await.status, 200);
    for what in OWN {
        let refused = act(&desk, what, &old).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (401, "token_revoked"),
            "{what}"
        );
    }
    // The second in which the deactivation fell has to be over before a token counts as issued after it.
    tenure_testkit::wait::until_async("a new token is taken", crate::common::PATIENCE, || async {
        act(&desk, "online", &token("ana")).await.status == 200
    })
    .await;
    assert_eq!(act(&desk, "heartbeat", &token("ana")).await.status, 200);
}

#[tokio::test]
async fn refusal_after_reactivation_says_when_a_new_token_is_taken() {
    let desk = guarded_with(Duration::from_secs(2)).await;
    let old = signed(&claims("ana", now() - 60), SECRET);
    for what in ["deactivate", "activate"] {
        assert_eq!(desk.post(&format!("/providers/ana/{what}")).await.status, 200);
    }
    let refused = act(&desk, "online", &token("ana")).await;
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
        let refused = act(&desk, what, &token("ana")).await;
        assert!(refused.json()["retry_after_ms"].is_u64(), "{what}: {refused:?}");
    }
    let refused = act(&desk, "online", &old).await;
    assert!(refused.text.contains("was issued before"), "{refused:?}");

    let due = asked_at + Duration::from_millis(wait);
    tenure_testkit::wait::until_async("the time to try again", crate::common::PATIENCE, || async {
        SystemTime::now() >= due
    })
    .await;
    assert_eq!(act(&desk, "online", &token("ana")).await.status, 200);
    let refused = act(&desk, "online", &old).await;
    assert!(
        refused.json()["retry_after_ms"].is_null(),
        "a new token is taken at once: {refused:?}"
    );
}

#[tokio::test]
async fn what_is_for_operators_refuses_providers() {
    let desk = guarded().await;
    let mine = token("ana");
    let as_provider = async |method: &str, path: &str, body: Value| {
        let request = desk.daemon.request(method, &format!("{R}{path}")).bearer_auth(&mine);
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
    assert_eq!(desk.get("/providers/ben").await.json()["active"], true);
}

#[tokio::test]
async fn status_tells_that_tokens_are_asked_for() {
    let desk = guarded().await;
    let status = desk.daemon.get("/v1/status").await;
    assert_eq!(status.json()["rosters"]["tokens"], json!({"keys": 1}));
    assert!(!status.text.contains("secret that is long"));
}
