//! A real server on a free port, over the reference store, and few words to talk to it.
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_core::clock::{Clock, ManualClock, SystemClock};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::{Drained, Parts, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub mod faulty;
pub mod golden;
pub mod raw;
pub mod sse;

use self::faulty::Faulty;

/// The time limit for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Passes once this process has run for so long. It counts small steps, so that a stall of the whole machine counts as one.
pub async fn running(time: Duration) {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..time.as_millis().div_ceil(STEP.as_millis()) {
        // tidy: waits on the time within which something is promised
        tokio::time::sleep(STEP).await;
    }
}

/// What comes of `work`, which is promised within so much time.
pub async fn promised<T>(what: &str, within: Duration, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        () = running(within) => panic!("{what} takes longer than {within:?}"),
    }
}

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

/// Settings under which what is arriving is waited for, for longer than a test takes.
pub fn slow() -> Settings {
    Settings {
        body_timeout: PATIENCE * 3,
        ..Settings::default()
    }
}

/// A request whose body is yet to come.
pub struct Arriving {
    socket: TcpStream,
    body: String,
}

impl Arriving {
    /// Sends the rest; the status of the answer.
    pub async fn finish(mut self) -> u16 {
        self.socket
            .write_all(self.body.as_bytes())
            .await
            .expect("the body is sent");
        let answer = self.read().await.expect("an answer");
        answer[9..12].parse().expect("a status")
    }

    /// Whether the connection ends without an answer.
    pub async fn ends_unanswered(mut self) -> bool {
        self.read().await.is_none_or(|answer| answer.is_empty())
    }

    async fn read(&mut self) -> Option<String> {
        let mut answer = String::new();
        let read = self.socket.read_to_string(&mut answer);
        let read = tokio::time::timeout(PATIENCE, read).await.expect("an end");
        read.is_ok().then_some(answer)
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

    /// Over a store with moods, under a stopped clock: a call that waits for the store waits until it is released.
    pub async fn still(settings: Settings) -> (Self, Arc<Faulty>, Arc<ManualClock>) {
        let store = Faulty::new(SystemClock::shared());
        let clock = Arc::new(ManualClock::new(0, 1));
        let daemon = Self::over(store.clone(), clock.clone(), settings).await;
        (daemon, store, clock)
    }

    pub async fn of(parts: Parts, settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let store = Arc::clone(parts.pulser.store());
        let (stop, stopped) = oneshot::channel();
        let server = Server::start(listener, parts, settings, async { drop(stopped.await) }).expect("a server");
        Self {
            base: format!("http://{}", server.addr()),
            client: reqwest::Client::builder()
                .tls_backend_preconfigured(tenure_tls::without_roots().expect("a configuration"))
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

    /// Begins a join whose body is yet to come. It may take as long as a test needs: [`slow`] has the settings.
    pub async fn begin_join(&self, group: &str, member: &str) -> Arriving {
        let mut socket = TcpStream::connect(self.server.addr()).await.expect("a connection");
        let body = json!({ "member": member }).to_string();
        let head = format!(
            "POST /v1/groups/{group}/members HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.expect("the head is sent");
        Arriving { socket, body }
    }

    /// Waits until so many requests have a place.
    pub async fn until_inside(&self, requests: u32) {
        let wanted = format!("requests_in_flight {requests}\n");
        tenure_testkit::wait::until_async("the requests are under way", PATIENCE, || async {
            self.get("/metrics").await.text.contains(&wanted)
        })
        .await;
    }

    /// Waits until the bodies of so many requests are arriving.
    pub async fn until_arriving(&self, bodies: u32) {
        let wanted = format!("http_bodies {bodies}\n");
        tenure_testkit::wait::until_async("the bodies are under way", PATIENCE, || async {
            self.get("/metrics").await.text.contains(&wanted)
        })
        .await;
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
