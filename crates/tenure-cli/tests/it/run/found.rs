//! What others find in Consul.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::consul::Agent;
use tenure_testkit::{http, wait};

use crate::run::PATIENCE;

/// The name under which everything here is registered.
pub(crate) const NAME: &str = "music";

/// The ports that clients find in the catalog.
pub(crate) fn passing(addr: SocketAddr) -> Option<Vec<u64>> {
    let (status, body) = http::get(addr, &format!("/v1/health/service/{NAME}?passing")).ok()?;
    let found: Vec<Value> = serde_json::from_str(&body).ok()?;
    assert_eq!(status, 200, "{body}");
    Some(
        found
            .iter()
            .map(|one| one["Service"]["Port"].as_u64().unwrap())
            .collect(),
    )
}

/// Waits until clients are sent to this port, and to no other.
#[track_caller]
pub(crate) fn found_at(agent: &Agent, port: u64) {
    wait::until(&format!("clients are sent to {port}"), PATIENCE, || {
        passing(agent.addr()).is_some_and(|ports| ports == [port])
    });
}

/// The ids that the agent knows, in whichever state.
pub(crate) fn registered(agent: &Agent) -> Vec<String> {
    let (status, body) = agent.http("GET", "/v1/agent/services", "").unwrap();
    assert_eq!(status, 200, "{body}");
    let services: serde_json::Map<String, Value> = serde_json::from_str(&body).unwrap();
    services.keys().cloned().collect()
}

/// A service as the agent has it.
pub(crate) fn service(agent: &Agent, id: &str) -> Value {
    let (status, body) = agent.http("GET", &format!("/v1/agent/service/{id}"), "").unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Looks all the time how many there are to be found.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<[AtomicUsize; 3]>,
}

impl Watch {
    pub(crate) fn over(addr: SocketAddr) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let (stop, count) = (Arc::clone(&over), Arc::clone(&counts));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(ports) = passing(addr) {
                    count[ports.len().min(2)].fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(5)); // tidy: waits on the next look being due
            }
        });
        Self {
            over,
            thread: Some(thread),
            counts,
        }
    }

    /// How often there was none, one, and more than one.
    pub(crate) fn ends(mut self) -> [usize; 3] {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        [0, 1, 2].map(|n| self.counts[n].load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
