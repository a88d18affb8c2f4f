//! A real server on a free port, over the reference store, and few words to talk to it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::{Drained, Parts, Server, Settings};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub mod faulty;
pub mod sse;

/// How long a test waits for what has to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server under test.
pub struct Daemon {
    pub base: String,
    pub client: reqwest::Client,
    pub server: Server,
    pub store: Arc<dyn Store>,
    stop: Option<oneshot::Sender<()>>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn read(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self {
            status,
            headers,
            text: response.text().await.expect("a body"),
        }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The code of a problem, whose shape is checked on the way.
    #[track_caller]
    pub fn code(&self) -> String {
        let kind = self.headers.get("content-type").and_then(|kind| kind.to_str().ok());
        assert_eq!(kind, Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16(), "{self:?}");
        assert!(
            problem["type"].is_string() && problem["title"].is_string() && problem["detail"].is_string(),
            "{self:?}"
        );
        problem["code"].as_str().expect("a code").to_owned()
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
            .to_str()
            .expect("text")
    }
}

impl Daemon {
    pub async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let clock = SystemClock::shared();
        let store = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
        Self::over(store, clock, settings).await
    }

    pub async fn over(store: Arc<dyn Store>, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        let parts = Parts::new(Arc::clone(&store), clock);
        Self::of(parts, settings).await
    }

    pub async fn of(parts: Parts, settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let store = Arc::clone(&parts.store);
        let (stop, stopped) = oneshot::channel();
        let server = Server::start(listener, parts, settings, async { drop(stopped.await) }).expect("a server");
        Self {
            base: format!("http://{}", server.addr()),
            client: reqwest::Client::builder()
                .tls_backend_preconfigured(tenure_tls::believing_nobody().expect("a configuration"))
                .no_proxy()
                .timeout(PATIENCE)
                .build()
                .expect("a client"),
            server,
            store,
            stop: Some(stop),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(Method::from_bytes(method.as_bytes()).expect("a method"), self.url(path))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.request("GET", path).send().await.expect("an answer")).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::read(self.request("DELETE", path).send().await.expect("an answer")).await
    }

    pub async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        Answer::read(self.request(method, path).json(&body).send().await.expect("an answer")).await
    }

    /// Joins, and answers the tenure id.
    pub async fn join(&self, group: &str, member: &str) -> String {
        self.join_for(group, member, 30_000).await
    }

    pub async fn join_for(&self, group: &str, member: &str, ttl_ms: u64) -> String {
        let body = json!({ "member": member, "ttl_ms": ttl_ms });
        let answer = self.send("POST", &format!("/v1/groups/{group}/members"), body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["tenure"].as_str().expect("a tenure").to_owned()
    }

    /// Asks for the shutdown, without waiting for it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Shuts down and waits.
    pub async fn shut_down(mut self) -> Drained {
        self.stop();
        self.server.wait().await
    }
}
