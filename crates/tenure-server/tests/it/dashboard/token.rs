//! A daemon that asks who is there.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_server::Settings;
use tenure_server::auth::{Scope, Secret, TokenEntry, TokenSettings};
use tokio::net::TcpListener;

use crate::common::Daemon;
use crate::dashboard::fixture::{group, join, join_at, open, parts, store_at_rest};
use crate::dashboard::page::{DESK, Page};

const SECRET: &str = "tnr_a-secret";

/// Stands before a daemon, lets only those in who show the token, and writes down what was asked for.
struct Gate {
    base: String,
    client: reqwest::Client,
    asked: Mutex<Vec<String>>,
}

async fn pass(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    let address = request.uri().to_string();
    gate.asked.lock().unwrap().push(address.clone());
    let shown = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let is_open = !address.starts_with("/v1/");
    if !is_open && shown != Some(&format!("Bearer {SECRET}")) {
        let detail = if shown.is_some() {
            "this daemon does not know the token"
        } else {
            "show a token"
        };
        let problem =
            serde_json::json!({"status": 401, "code": "token_missing", "title": "A token is needed", "detail": detail});
        return (StatusCode::UNAUTHORIZED, axum::Json(problem)).into_response();
    }
    let mut ask = gate.client.get(format!("{}{address}", gate.base));
    for name in ["accept", "last-event-id", "if-none-match"] {
        if let Some(value) = request.headers().get(name) {
            ask = ask.header(name, value);
        }
    }
    let answer = ask.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    for name in ["content-type", "content-security-policy", "tenure-store-time"] {
        if let Some(value) = answer.headers().get(name) {
            response = response.header(name, value);
        }
    }
    response.body(Body::from_stream(answer.bytes_stream())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn page_keeps_the_token_in_the_tab_and_out_of_addresses() {
    let daemon = open().await;
    join(&daemon, "g", "worker").await;
    let client = daemon.client.clone();
    let (base, asked) = (daemon.base.clone(), Mutex::default());
    let gate = Arc::new(Gate { base, client, asked });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let outside = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(pass).with_state(Arc::clone(&gate));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let Some(mut page) = Page::open(&outside, "#/g/g", DESK).await else {
        return;
    };
    page.until("it asks", "document.getElementById('token').open").await;
    page.until_says("#token", "show a token").await;
    // Asking is put off, and taken up again.
    page.press("Escape").await;
    page.until_says("#banners", "A token is needed.").await;
    page.eval("document.querySelector('#banners button').click()").await;
    page.until("it asks again", "document.getElementById('token').open")
        .await;
    page.write("tnr_a-wrong-one").await;
    page.press("Enter").await;
    page.until_says("#token", "refused: this daemon does not know the token")
        .await;
    page.write(SECRET).await;
    page.press("Enter").await;
    page.until_says(".member", "worker").await;
    // The stream shows it as well.
    join(&daemon, "g", "later").await;
    page.until_says(".member", "later").await;
    page.until("the question is gone", "!document.getElementById('token').open")
        .await;
    assert_eq!(page.eval("sessionStorage.getItem('tenure.token')").await, SECRET);
    assert_eq!(
        page.eval("JSON.stringify(localStorage)")
            .await
            .as_str()
            .expect("text")
            .find("tnr_"),
        None
    );
    assert_eq!(
        page.eval("location.href + document.cookie")
            .await
            .as_str()
            .expect("text")
            .find("tnr_"),
        None
    );
    assert_eq!(page.eval("document.getElementById('token-field').value").await, "");
    page.go("#/g/g").await;
    page.until_says(".member", "worker").await;
    assert!(
        gate.asked
            .lock()
            .unwrap()
            .iter()
            .all(|address| !address.contains("tnr_"))
    );
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn token_for_one_group_shows_that_group_only() {
    let secret = Secret::draw().unwrap();
    let entry = TokenEntry {
        name: "reader".to_owned(),
        sha256: secret.sha256(),
        scopes: [Scope::Read].into_iter().collect(),
        groups: vec!["mine".to_owned()],
        rosters: Vec::new(),
        expires: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    std::fs::write(&file, entry.to_string()).unwrap();
    let settings = Settings {
        tokens: Some(TokenSettings::new(&file)),
        ..Settings::default()
    };
    let store = store_at_rest();
    join_at(&store, &group("mine"), "worker", &[]).await;
    join_at(&store, &group("other"), "hidden", &[]).await;
    let daemon = Daemon::of(parts(&store), settings).await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until("it asks", "document.getElementById('token').open").await;
    page.until_says(".sentence", "A token is needed.").await;
    assert!(!page.text("main").await.contains("joined"), "it knows nothing yet");
    page.write(secret.text()).await;
    page.press("Enter").await;
    page.until_says(".entry", "mine 1 member settled").await;
    assert!(!page.text(".entry").await.contains("other"));
    page.turn("#/g/mine").await;
    page.until_says(".member", "worker").await;
    page.turn("#/g/other").await;
    let refusal = "document.querySelector('.list > .quiet:not([hidden])')?.innerText.length > 10";
    page.until("it says why nothing is shown", refusal).await;
    assert!(!page.text("main").await.contains("hidden"));
    page.assert_clean();
}
