//! Tokens come and go while the server runs, and what each sees is what it is for.

use tenure_server::auth::{Scope, Secret};
use tenure_testkit::wait::until_async;

use crate::common::sse::Stream;
use crate::common::{Answer, Daemon};
use crate::token_server::{SOON, Tokens, ask};

async fn is_let_in(daemon: &Daemon, secret: &Secret) -> bool {
    let status = ask(daemon, "GET", "/v1/groups/g", Some(secret.text())).await.status;
    assert!(status == 200 || status == 401, "{status}");
    status == 200
}

async fn status(daemon: &Daemon, secret: &Secret) -> serde_json::Value {
    ask(daemon, "GET", "/v1/status", Some(secret.text())).await.json()
}

#[tokio::test]
async fn token_file_reloads_and_invalid_file_is_ignored() {
    let mut tokens = Tokens::none();
    let first = tokens.add("first", &[Scope::Read], &[], &[]);
    let daemon = tokens.serve().await;
    assert!(is_let_in(&daemon, &first).await);
    let second = tokens.add("second", &[Scope::Read], &[], &[]);
    until_async("a new token is known", SOON, || is_let_in(&daemon, &second)).await;
    assert_eq!(status(&daemon, &first).await["access"]["tokens"], 2);

    tokens.write_text(&format!("[[token]]\nname = \"{}", second.text()));
    let trouble = || async { status(&daemon, &first).await["access"]["tokens_trouble"].clone() };
    until_async("the error is reported", SOON, || async { trouble().await.is_string() }).await;
    let told = trouble().await.to_string();
    assert!(
        told.contains("tokens.toml") && !told.contains(&second.text()[4..]),
        "{told}"
    );
    assert!(is_let_in(&daemon, &first).await && is_let_in(&daemon, &second).await);
    let doctor = ask(&daemon, "GET", "/v1/doctor", Some(first.text())).await.text;
    assert!(doctor.contains("the tokens are unchanged"), "{doctor}");
    let metrics = ask(&daemon, "GET", "/metrics", Some(first.text())).await.text;
    assert!(
        metrics.contains("tenure_credentials_stale{what=\"tokens\"} "),
        "{metrics}"
    );

    std::fs::remove_file(tokens.file()).unwrap();
    assert!(is_let_in(&daemon, &first).await, "a file that is gone is a broken one");
    tokens.remove("second");
    until_async("the token is gone", SOON, || async {
        !is_let_in(&daemon, &second).await
    })
    .await;
    assert!(is_let_in(&daemon, &first).await);
    assert!(trouble().await.is_null());
}

#[tokio::test]
async fn a_token_ends_when_it_says() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let daemon = tokens.serve().await;
    assert!(is_let_in(&daemon, &one).await);
    tokens.change("one", |entry| {
        entry.expires = Some("2026-01-01T00:00:00Z".parse().unwrap())
    });
    until_async("the token has expired", SOON, || async {
        !is_let_in(&daemon, &one).await
    })
    .await;
    let answer = ask(&daemon, "GET", "/v1/groups/g", Some(one.text())).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (401, "unauthenticated")
    );
    assert!(answer.text.contains("the token one has expired"), "{}", answer.text);
    assert!(answer.header("www-authenticate").contains("invalid_token"));
    tokens.change("one", |entry| {
        entry.expires = Some("2199-01-01T00:00:00Z".parse().unwrap())
    });
    until_async("the token counts again", SOON, || is_let_in(&daemon, &one)).await;
}

#[tokio::test]
async fn malformed_authorization_is_refused() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let daemon = tokens.serve().await;
    let secret = one.text();
    let with = |header: String| {
        let request = daemon.request("GET", "/v1/groups/g").header("authorization", header);
        async { Answer::read(request.send().await.unwrap()).await.status.as_u16() }
    };
    assert_eq!(with(format!("Bearer {secret}")).await, 200);
    assert_eq!(with(format!("bearer  {secret}")).await, 200);
    for bad in [
        secret.to_owned(),
        format!("Basic {secret}"),
        format!("Bearer {secret}0"),
        format!("Bearer {} {secret}", &secret[..10]),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {}", secret.to_uppercase()),
    ] {
        assert_eq!(with(bad.clone()).await, 401, "{bad}");
    }
    let twice = daemon
        .request("GET", "/v1/groups/g")
        .bearer_auth(secret)
        .bearer_auth(secret);
    assert_eq!(twice.send().await.unwrap().status(), 401);
    let in_the_query = ask(&daemon, "GET", &format!("/v1/groups/g?access_token={secret}"), None).await;
    assert_eq!(in_the_query.status, 401);
}

#[tokio::test]
async fn restricted_token_lists_its_groups_only() {
    let mut tokens = Tokens::none();
    let all = tokens.add("all", &[Scope::Read, Scope::Beat, Scope::Write], &[], &[]);
    let some = tokens.add("some", &[Scope::Read], &["b*"], &["support"]);
    let daemon = tokens.serve().await;
    for group in ["a", "b1", "b2", "c"] {
        let body = serde_json::json!({"member": "m", "ttl_ms": 60_000});
        let join = daemon
            .request("POST", &format!("/v1/groups/{group}/members"))
            .bearer_auth(all.text());
        assert_eq!(join.json(&body).send().await.unwrap().status(), 201);
    }
    for roster in ["sales", "support"] {
        let path = format!("/v1/rosters/{roster}/providers/ana");
        assert_eq!(ask(&daemon, "PUT", &path, Some(all.text())).await.status, 200);
    }
    let list = |path: &'static str, secret: Secret| {
        let daemon = &daemon;
        async move { ask(daemon, "GET", path, Some(secret.text())).await.json() }
    };
    assert_eq!(
        list("/v1/groups", some.clone()).await,
        serde_json::json!({"groups": ["b1", "b2", "roster.support"]})
    );
    let page = list("/v1/groups?limit=1", some.clone()).await;
    assert_eq!(page, serde_json::json!({"groups": ["b1"], "next": "b1"}));
    let rosters = || async {
        list("/v1/rosters", all.clone()).await["rosters"]
            .as_array()
            .unwrap()
            .len()
            == 2
    };
    until_async("both rosters are listed", SOON, rosters).await;
    assert_eq!(
        list("/v1/rosters", some.clone()).await["rosters"],
        serde_json::json!(["support"])
    );
    let groups = |status: &serde_json::Value| -> Vec<String> {
        let groups = status["groups"].as_array().unwrap().iter();
        groups
            .map(|group| group["group"].as_str().unwrap().to_owned())
            .collect()
    };
    let seen = || async { groups(&status(&daemon, &all).await).len() >= 6 };
    until_async("all groups were seen", SOON, seen).await;
    let narrow = status(&daemon, &some).await;
    assert_eq!(groups(&narrow), ["b1", "b2", "roster.support"]);
    assert_eq!(narrow["groups_total"], 3);
    assert!(!narrow.to_string().contains("sales"), "{narrow}");
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let mut settings = tokens.settings();
    settings.stream_keep_alive = std::time::Duration::from_millis(50);
    let daemon = crate::token_server::serve(settings, None).await;
    let shown = format!("Bearer {}", one.text());
    let mut events = Stream::open(&daemon, "/v1/groups/g/events", &[("authorization", &shown)]).await;
    events.comment("still here").await;
    tokens.remove("one");
    assert!(events.next().await.is_none(), "the stream went on");
}

#[tokio::test]
async fn probes_answer_everybody_and_tell_strangers_little() {
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let mut settings = tokens.settings();
    settings.public_metrics = true;
    let mut daemon = crate::token_server::serve(settings, None).await;
    assert_eq!(ask(&daemon, "GET", "/livez", None).await.status, 200);
    let is_ready = || async { ask(&daemon, "GET", "/readyz", None).await.status == 200 };
    until_async("the ledger has answered", SOON, is_ready).await;
    assert_eq!(ask(&daemon, "GET", "/readyz", None).await.status, 200);
    assert_eq!(ask(&daemon, "GET", "/readyz", Some("nonsense")).await.status, 200);
    assert_eq!(
        ask(&daemon, "GET", "/metrics", None).await.status,
        200,
        "they are public here"
    );
    assert_eq!(ask(&daemon, "GET", "/v1/doctor", None).await.status, 401);
    assert_eq!(ask(&daemon, "GET", "/readyz", Some(one.text())).await.status, 200);
    daemon.stop();
}
