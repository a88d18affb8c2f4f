//! What is kept from a token that is for some groups, and from one that is not known any more.

use serde_json::{Value, json};
use tenure_server::Settings;
use tenure_server::auth::{Scope, Secret};
use tenure_testkit::wait::until_async;

use crate::common::{Answer, Daemon, sse::Stream};
use crate::token_server::{SOON, Tokens, ask, serve};

async fn status(daemon: &Daemon, secret: &Secret) -> Value {
    ask(daemon, "GET", "/v1/status", Some(secret.text())).await.json()
}

#[tokio::test]
async fn restricted_token_sees_no_files_addresses_or_other_groups() {
    let mut tokens = Tokens::none();
    let all = tokens.add("all", &[Scope::Read], &[], &[]);
    let some = tokens.add("some", &[Scope::Read], &["b*"], &["support"]);
    let daemon = tokens.serve().await;
    tokens.write_text("[[token]]\nname = \"carol\"\nsha256 = \"nonsense\"\n");
    until_async("the error is reported to an unrestricted token", SOON, || async {
        status(&daemon, &all).await["access"]["tokens_trouble"].is_string()
    })
    .await;
    let whole = status(&daemon, &all).await;
    assert_eq!(whole["store"]["place"], "memory:", "{whole}");
    let narrow = status(&daemon, &some).await;
    assert_eq!(narrow["access"].get("tokens_trouble"), None, "{narrow}");
    assert_eq!(narrow["store"]["up"], true, "{narrow}");
    assert_eq!(narrow["rosters"]["ledger"]["up"], true, "{narrow}");
    let text = narrow.to_string();
    for secret in ["memory:", "tokens.toml", "carol"] {
        assert!(!text.contains(secret), "{secret} in {narrow}");
    }
}

async fn joins(daemon: &Daemon, secret: &Secret) {
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .bearer_auth(secret.text());
    let answer = request.json(&json!({"member": "late"})).send().await.unwrap();
    assert_eq!(answer.status(), 201);
}

/// Removes a token, and waits until it is refused.
async fn revoke(tokens: &mut Tokens, daemon: &Daemon, name: &str, secret: &Secret) {
    tokens.remove(name);
    until_async("the token is refused", SOON, || async {
        ask(daemon, "GET", "/v1/groups", Some(secret.text())).await.status == 401
    })
    .await;
}

#[tokio::test]
async fn removed_token_gets_no_events() {
    let mut tokens = Tokens::none();
    let reader = tokens.add("reader", &[Scope::Read], &[], &[]);
    let member = tokens.add("member", &[Scope::Beat, Scope::Read], &[], &[]);
    // The stream is not read in between.
    let settings = Settings {
        stream_keep_alive: SOON,
        ..tokens.settings()
    };
    let daemon = serve(settings, None).await;
    let shown = format!("Bearer {}", reader.text());
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[("authorization", &shown)]).await;
    let poll = daemon
        .request("GET", "/v1/groups/g/events?wait_ms=15000")
        .bearer_auth(reader.text());
    let poll = tokio::spawn(async move { Answer::read(poll.send().await.unwrap()).await });
    until_async("both follow", SOON, || async {
        status(&daemon, &member).await["streams"] == 2
    })
    .await;
    revoke(&mut tokens, &daemon, "reader", &reader).await;
    joins(&daemon, &member).await;
    assert_eq!(stream.next().await, None, "the stream went on");
    let polled = poll.await.unwrap();
    assert_eq!(polled.json()["events"], json!([]), "{polled:?}");
}
