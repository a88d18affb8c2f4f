//! Responses that the installed agent does not give: those of other versions, and of an agent that closes connections
//! at will.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_core::clock::SystemClock;
use tenure_supervise::catalog::consul::{ConsulSettings, catalog};
use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::wait;

use super::{PATIENCE, Way, phase, service};

/// The state of the fake agent, and the requests it got.
#[derive(Debug, Default)]
struct State {
    definition: Option<Value>,
    registered: usize,
    passed: usize,
    /// The check is lost; respond with this.
    lost: Option<(u16, &'static str)>,
    removed: usize,
    /// How many removals are followed by a request that registers again.
    undead: usize,
    /// Requests about leftovers, whose ids start with `old`. These fail or hang.
    old: usize,
    old_hangs: bool,
    /// The time of the last beat, and the longest time between two.
    beat: Option<(Instant, Duration)>,
}

/// A fake agent. It announces keep-alive and closes each connection after one response.
#[derive(Debug, Clone)]
struct Fake {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self {
            addr: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let its = fake.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let its = its.clone();
                // An aborted connection is ignored.
                std::thread::spawn(move || its.serve(client).ok());
            }
        });
        fake
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(client.try_clone()?);
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if first.contains("/old") && self.state().old_hangs {
            self.state().old += 1;
            // Until the client disconnects.
            return reader.read(&mut [0]).map(drop);
        }
        let (status, body) = self.answer(&first, &body);
        let length = body.len();
        write!(client, "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    fn answer(&self, request: &str, body: &[u8]) -> (u16, String) {
        let mut state = self.state();
        if request.contains("/old") {
            state.old += 1;
            return (500, "not now".to_owned());
        }
        if request.starts_with("PUT /v1/agent/service/register") {
            state.definition = serde_json::from_slice(body).ok();
            state.registered += 1;
        } else if request.starts_with("PUT /v1/agent/service/deregister") {
            state.removed += 1;
            if state.undead == 0 {
                state.definition = None;
            }
            state.undead = state.undead.saturating_sub(1);
        } else if request.starts_with("PUT /v1/agent/check/pass") {
            if let Some((status, words)) = state.lost.take() {
                state.definition = None;
                return (status, words.to_owned());
            }
            state.passed += 1;
            let (now, last) = (Instant::now(), state.beat.unwrap_or((Instant::now(), Duration::ZERO)));
            state.beat = Some((now, last.1.max(now - last.0)));
        } else {
            return match &state.definition {
                Some(it) => {
                    let found = json!({"Service": it["Name"], "Port": it["Port"], "Address": it["Address"],
                        "Tags": it["Tags"], "Meta": it["Meta"]});
                    (200, found.to_string())
                }
                None => (404, "unknown service ID".to_owned()),
            };
        }
        (200, String::new())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_check_is_registered_again_for_all_error_texts() {
    for shape in [
        (
            404,
            "Unknown check ID \"service:web-1\". Ensure that the check ID is passed.",
        ),
        (500, "CheckID \"service:web-1\" does not have associated TTL"),
    ] {
        let fake = Fake::start();
        let catalog = Way::to(fake.addr).catalog(service("web-1"));
        catalog.want(true);
        phase(&catalog, Phase::Passing).await;
        let before = fake.state().registered;
        fake.state().lost = Some(shape);
        wait::until("it is registered again", PATIENCE, || fake.state().registered > before);
        phase(&catalog, Phase::Passing).await;
        assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
        assert_eq!(fake.state().definition, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_is_confirmed_by_reading_back() {
    for undead in [1, 3] {
        let fake = Fake::start();
        let catalog = Way::to(fake.addr).catalog(service("web-1"));
        catalog.want(true);
        phase(&catalog, Phase::Passing).await;
        fake.state().undead = undead;
        assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
        let state = fake.state();
        assert_eq!((state.removed, &state.definition), (undead + 1, &None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_keep_alive_connection_fails_no_beat() {
    let fake = Fake::start();
    let catalog = Way::to(fake.addr).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    let status = catalog.watch();
    wait::until("there were six beats", PATIENCE, || {
        let now = status.borrow();
        assert_eq!((now.phase, now.failed_in_a_row), (Phase::Passing, 0), "{}", *now);
        fake.state().passed >= 6
    });
    assert_eq!(fake.state().registered, 1, "a healthy service is not registered again");
}

/// The journal entry of a dead supervisor.
fn left(journal: &std::path::Path, fake: &Fake, id: &str) {
    let entry = json!({"agent": format!("http://{}", fake.addr), "id": id, "life": id});
    std::fs::write(journal.join(format!("registration-{id}.json")), entry.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_leftovers_delay_neither_beats_nor_the_stop() {
    for hangs in [false, true] {
        let (fake, home) = (Fake::start(), tempfile::tempdir().unwrap());
        fake.state().old_hangs = hangs;
        (0..6).for_each(|n| left(home.path(), &fake, &format!("old-{n}")));
        left(home.path(), &fake, "other");
        let service = service("web-1");
        let ttl = service.ttl;
        let mut way = Way::to(fake.addr);
        way.journal = Some(home.path().to_owned());
        let catalog = way.catalog(service);
        catalog.want(true);
        phase(&catalog, Phase::Passing).await;
        let (before, status) = (fake.state().old, catalog.watch());
        wait::until("there were four beats", PATIENCE, || {
            let now = status.borrow();
            assert_eq!((now.phase, now.failed_in_a_row), (Phase::Passing, 0), "{}", *now);
            fake.state().passed >= 4
        });
        assert!(fake.state().beat.unwrap().1 < ttl, "it was critical");
        assert!(fake.state().old > before, "the retries continue");
        // A removable leftover does not wait for the others.
        let other = home.path().join("registration-other.json");
        wait::until("the removable one is gone from the journal", PATIENCE, || {
            !other.exists()
        });
        assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
        wait::until("only the stuck entries are kept", PATIENCE, || {
            std::fs::read_dir(home.path()).unwrap().count() == 6
        });
    }
}

#[tokio::test]
async fn request_timeout_above_a_beat_is_rejected() {
    let service = service("web-1");
    let settings = ConsulSettings {
        request_timeout: Some(service.beat()),
        ..ConsulSettings::new("127.0.0.1:1")
    };
    let refused = catalog(settings, service, &SystemClock::shared()).unwrap_err();
    assert!(
        refused.chain().contains("between zero and a beat"),
        "{}",
        refused.chain()
    );
}

/// Agents revert direct writes to the catalog.
#[test]
fn only_the_agent_api_is_used() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            for path in ["v1/catalog", "\"catalog\", \"register\"", "catalog/register"] {
                assert!(!text.contains(path), "{} in {}", path, entry.path().display());
            }
        }
    }
}
