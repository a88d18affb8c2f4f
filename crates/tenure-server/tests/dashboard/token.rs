//! A daemon that asks who is there.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;

use crate::house::{join, open};
use crate::page::{DESK, Page};

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
async fn the_page_asks_for_a_token_keeps_it_in_the_tab_and_in_no_address() {
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
