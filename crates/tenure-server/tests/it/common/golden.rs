//! Golden files: scripts of requests with the answers they had, word for word.
//!
//! A script is paragraphs. `# …` is a comment, `advance 1s` turns the clock of the daemon and its store, and a request is
//! its method and path, headers, and body, and behind `=>` the status, headers and JSON of the answer. Under this clock
//! every time, term and token is the same in each run, so that a script may name them. `TENURE_UPDATE_GOLDEN=1` writes the
//! answers again.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::id::TenureId;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_core::time::{StoreTime, parse_duration};
use tenure_server::Settings;
use tenure_testkit::wait::until_async;

use super::{Answer, Daemon, PATIENCE};

const UPDATE: &str = "TENURE_UPDATE_GOLDEN";
/// 2026-01-01T00:00:00Z.
pub const START: u64 = 1_767_225_600_000_000;
/// Headers that depend on the transport or on background loops.
const UNSTEADY: [&str; 4] = ["content-length", "date", "transfer-encoding", "tenure-store-time"];
/// Fields that depend on background loops or on the version.
const MASKED: [&str; 4] = ["last_success", "last_success_age_ms", "runs", "version"];

/// A daemon whose every answer is known beforehand.
pub struct Golden {
    daemon: Daemon,
    clock: Arc<ManualClock>,
    /// Times and terms are masked.
    masks_times: bool,
}

impl Golden {
    /// Over the reference store.
    pub async fn start() -> Self {
        Self::over(|clock| MemoryStore::new(StoreOptions::default(), clock)).await
    }

    /// Over a store that is made of the clock.
    pub async fn over<S: Store + 'static>(store: impl FnOnce(Arc<dyn Clock>) -> Arc<S>) -> Self {
        let clock = Arc::new(ManualClock::new(START, 7));
        let store = store(clock.clone());
        let daemon = Daemon::over(store, clock.clone(), Settings::default()).await;
        Self {
            masks_times: false,
            ..Self::of(daemon, clock)
        }
    }

    /// A daemon whose times and terms depend on background loops, and are masked.
    pub fn of(mut daemon: Daemon, clock: Arc<ManualClock>) -> Self {
        // Each request has a connection of its own: one that waits for the next would be closed by a turn of the clock.
        daemon.client = reqwest::Client::builder()
            .tls_backend_preconfigured(tenure_tls::without_roots().expect("a configuration"))
            .no_proxy()
            .pool_max_idle_per_host(0)
            .timeout(PATIENCE)
            .build()
            .expect("a client");
        Self {
            daemon,
            clock,
            masks_times: true,
        }
    }

    /// Sends what the script asks for, and compares the answers with those in it.
    pub async fn play(&self, name: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/http/golden/{name}.txt"));
        let script = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut played = Vec::new();
        for paragraph in script.split("\n\n") {
            played.push(self.paragraph(paragraph.trim()).await);
        }
        let played = played.join("\n\n") + "\n";
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, played).expect("the file can be written");
            return;
        }
        let differs = |(old, new): &(&str, &str)| old.trim() != *new;
        if let Some((old, new)) = script.split("\n\n").zip(played.trim_end().split("\n\n")).find(differs) {
            panic!("{name}: the answer is another one ({UPDATE}=1 writes it)\n--- recorded\n{old}\n--- now\n{new}\n");
        }
    }

    /// Does what a paragraph says; the paragraph with the answer there is now.
    async fn paragraph(&self, text: &str) -> String {
        if text.is_empty() || text.starts_with('#') {
            return text.to_owned();
        }
        if let Some(by) = text.strip_prefix("advance ") {
            self.clock.advance(duration(by));
            return text.to_owned();
        }
        let request = text.split("\n=>").next().unwrap_or_default();
        format!("{request}\n=> {}", self.ask(request).await)
    }

    async fn ask(&self, request: &str) -> String {
        let mut lines = request.lines();
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).expect("METHOD PATH");
        let is_header = |line: &&str| {
            line.split_once(": ")
                .is_some_and(|(name, _)| name.bytes().all(is_of_header))
        };
        let headers = Vec::from_iter(lines.clone().take_while(is_header));
        let body = Vec::from_iter(lines.skip(headers.len())).join("\n");
        let send = || async {
            let mut asked = self.daemon.request(method, path);
            if !body.is_empty() && !request.contains("\ncontent-type: ") {
                asked = asked.header("content-type", "application/json");
            }
            for (name, value) in headers.iter().filter_map(|line| line.split_once(": ")) {
                asked = asked.header(name, value);
            }
            Answer::read(asked.body(body.clone()).send().await.expect("an answer")).await
        };
        let mut answer = send().await;
        if path == "/v1/status" {
            // The watch loop may be looking at the groups right now.
            until_async("the groups are looked at", PATIENCE, || async {
                send().await.json()["groups_age_ms"] == 0
            })
            .await;
            answer = send().await;
        }
        self.show(&answer)
    }

    fn show(&self, answer: &Answer) -> String {
        let mut text = answer.status.as_u16().to_string();
        for (name, value) in shown(&answer.headers) {
            write!(text, "\n{name}: {value}").expect("a string takes it");
        }
        if let Ok(mut body) = serde_json::from_str::<Value>(&answer.text) {
            mask(&mut body);
            if self.masks_times {
                mask_times(&mut body);
            }
            write!(text, "\n{body:#}").expect("a string takes it");
        } else if !answer.text.is_empty() {
            write!(text, "\n{}", answer.text.trim_end().replace("\n\n", "\n")).expect("a string takes it");
        }
        text
    }
}

/// Also `1us`: the store counts in microseconds, and a duration in milliseconds is rounded.
fn duration(text: &str) -> Duration {
    match text.strip_suffix("us") {
        Some(micros) => Duration::from_micros(micros.parse().expect("a number")),
        None => parse_duration(text).expect("a duration"),
    }
}

fn is_of_header(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// The headers that are part of the surface, in the order of their names. What nearly all answers have is left out.
fn shown(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let all = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("(not text)")));
    let usual = [("cache-control", "no-store"), ("content-type", "application/json")];
    let mut shown = Vec::from_iter(all.filter(|header| !UNSTEADY.contains(&header.0) && !usual.contains(header)));
    shown.sort_unstable();
    shown
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Its first turn is a call of the daemon to itself, which may be under way.
            if fields.get("name").is_some_and(|name| name == "pulse") {
                fields.retain(|name, _| !name.starts_with("last_success"));
            }
            for (name, value) in fields {
                match MASKED.contains(&name.as_str()) {
                    true => *value = "(masked)".into(),
                    false => mask(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn mask_times(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<StoreTime>().is_ok() => *text = "(time)".to_owned(),
        Value::String(text) => {
            if let Ok(tenure) = text.parse::<TenureId>() {
                *text = format!("{}@(term)", tenure.member());
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(mask_times),
        Value::Array(items) => items.iter_mut().for_each(mask_times),
        _ => {}
    }
}
