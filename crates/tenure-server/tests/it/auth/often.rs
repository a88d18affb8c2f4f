//! Callers who ask more often than they may.

use tenure_server::auth::{Scope, Secret};
use tenure_server::{RateSettings, Settings};

use crate::common::Daemon;
use crate::token_server::{Tokens, ask, serve};

/// So slow that no test outlives a second request's turn.
const RARE: RateSettings = RateSettings {
    per_second: 1,
    burst: 3,
};

#[tokio::test]
async fn one_caller_too_many_times_is_refused_and_the_others_are_not() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let two = tokens.add("two", &[Scope::Read], &[], &[]);
    let settings = Settings {
        rate: Some(RARE),
        ..tokens.settings()
    };
    let daemon = serve(settings, None).await;
    let mut refused = None;
    for _ in 0..10 {
        let answer = ask(&daemon, "GET", "/v1/now", Some(one.text())).await;
        if answer.status == 429 {
            refused = Some(answer);
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.code(), "rate_limited");
    assert_eq!(refused.header("retry-after"), "1");
    let wait = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert!((1..=1_000).contains(&wait), "{wait}");
    assert_eq!(ask(&daemon, "GET", "/v1/now", Some(two.text())).await.status, 200);
    assert_eq!(
        ask(&daemon, "GET", "/livez", Some(one.text())).await.status,
        200,
        "a probe counts nowhere"
    );
}

#[tokio::test]
async fn without_tokens_the_address_counts() {
    let settings = Settings {
        rate: Some(RARE),
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    let mut refused = 0;
    for _ in 0..10 {
        refused += u32::from(daemon.get("/v1/now").await.status == 429);
    }
    assert!(refused >= 4, "{refused} of ten concurrent requests were too many");
}

#[tokio::test]
async fn guessing_tokens_is_limited_by_address() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let settings = Settings {
        rate: Some(RARE),
        ..tokens.settings()
    };
    let daemon = serve(settings, None).await;
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(ask(&daemon, "GET", "/v1/now", Some("guess")).await.status.as_u16());
    }
    assert!(answers.contains(&401) && answers.contains(&429), "{answers:?}");
    assert_eq!(ask(&daemon, "GET", "/v1/now", Some(one.text())).await.status, 200);
}

#[tokio::test]
async fn forbidden_requests_count_for_the_token() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let gone = tokens.add("gone", &[Scope::Read], &[], &[]);
    tokens.change("gone", |entry| {
        entry.expires = Some("2026-01-01T00:00:00Z".parse().unwrap());
    });
    let settings = Settings {
        rate: Some(RARE),
        ..tokens.settings()
    };
    let daemon = serve(settings, None).await;
    for (secret, refused) in [(one, 403), (gone, 401)] {
        let mut answers = Vec::new();
        for _ in 0..10 {
            let answer = ask(&daemon, "POST", "/v1/groups/g/sweep", Some(secret.text())).await;
            answers.push(answer.status.as_u16());
        }
        assert!(answers.contains(&refused) && answers.contains(&429), "{answers:?}");
        assert_eq!(
            ask(&daemon, "GET", "/v1/now", None).await.status,
            401,
            "others at this address have their own count"
        );
    }
}

#[tokio::test]
async fn providers_count_by_address_before_their_tokens_are_looked_at() {
    let settings = Settings {
        rate: Some(RARE),
        ..Settings::default()
    };
    let daemon = serve(settings, Some(crate::auth::providers::verifier())).await;
    let mut answers = Vec::new();
    for n in 0..10 {
        let own = crate::auth::providers::signed(&format!("p{n}"), crate::auth::providers::KEY);
        let path = format!("/v1/rosters/r/providers/p{n}/heartbeat");
        answers.push(ask(&daemon, "POST", &path, Some(&own)).await.status.as_u16());
    }
    assert!(answers.contains(&404) && answers.contains(&429), "{answers:?}");
}

#[tokio::test]
async fn one_caller_cannot_take_all_event_streams() {
    let mut tokens = Tokens::none();
    let greedy = tokens.add("greedy", &[Scope::Read], &[], &[]);
    let modest = tokens.add("modest", &[Scope::Read], &[], &[]);
    let settings = Settings {
        max_streams: 9,
        ..tokens.settings()
    };
    let daemon = serve(settings, None).await;
    let follow = async |secret: &Secret, group: &str| {
        let request = daemon.request("GET", &format!("/v1/groups/{group}/events"));
        let request = request.header("accept", "text/event-stream").bearer_auth(secret.text());
        request.send().await.expect("an answer")
    };
    let mut open = Vec::new();
    for group in ["a", "b", "c"] {
        for _ in 0..20 {
            let stream = follow(&greedy, group).await;
            if stream.status() == 200 {
                open.push(stream);
            }
        }
    }
    assert!((9..13).contains(&open.len()), "{}", open.len());
    for group in ["a", "d"] {
        open.push(follow(&modest, group).await);
        assert_eq!(open.last().unwrap().status(), 200, "{group}");
    }
}
