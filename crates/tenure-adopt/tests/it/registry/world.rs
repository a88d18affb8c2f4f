//! Shared by the tests: a server with a foreign registry, and janitors for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_adopt::{AdoptSettings, Janitor, Listener, Notice, PassReport};
use tenure_core::clock::Clock;
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::Flavour;
use tenure_valkey::ConnectionOptions;

pub(crate) const HASH: &str = "connections:registry";
pub(crate) const HEARTBEAT: &str = "instance:heartbeat:{id}";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) use crate::world::World;
use crate::world::connected;

impl World {
    pub(crate) fn claim(&self, key: &str, owner: &str) {
        self.run(&["HSET", HASH, key, owner]);
    }

    pub(crate) fn claim_many(&self, owner: &str, keys: impl Iterator<Item = usize>) {
        let keys: Vec<String> = keys.map(|n| format!("{owner}-device-{n}")).collect();
        for some in keys.chunks(1000) {
            let mut args = vec!["HSET", HASH];
            args.extend(some.iter().flat_map(|key| [key.as_str(), owner]));
            self.run(&args);
        }
    }

    pub(crate) fn beat(&self, owner: &str) {
        self.run(&["SET", &format!("instance:heartbeat:{owner}"), "1", "EX", "90"]);
    }

    pub(crate) fn die(&self, owner: &str) {
        self.run(&["DEL", &format!("instance:heartbeat:{owner}")]);
    }

    pub(crate) fn owner(&self, key: &str) -> Option<String> {
        match self.run(&["HGET", HASH, key]) {
            Reply::Nil => None,
            reply => Some(reply.text()),
        }
    }

    pub(crate) fn len(&self) -> i64 {
        self.run(&["HLEN", HASH]).int().unwrap()
    }
}

pub(crate) fn settings(settle_ms: u64) -> AdoptSettings {
    let mut settings = AdoptSettings::new(HASH, HEARTBEAT).unwrap();
    settings.settle = Duration::from_millis(settle_ms);
    settings
}

/// Waits until the connection is up, so that the first call finds it. Tolerates a short stall of the machine.
pub(crate) async fn ready(url: &str, settings: AdoptSettings) -> Janitor {
    ready_with(url, settings, patient()).await
}

pub(crate) fn patient() -> ConnectionOptions {
    ConnectionOptions {
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ..ConnectionOptions::default()
    }
}

pub(crate) async fn ready_with(url: &str, settings: AdoptSettings, options: ConnectionOptions) -> Janitor {
    Janitor::new(connected(url, options).await, settings)
}

/// A janitor as a daemon runs it.
pub(crate) struct Daemon {
    janitor: Janitor,
    clock: Arc<dyn Clock>,
}

impl Daemon {
    pub(crate) async fn ready(url: &str, settings: AdoptSettings, listener: Option<Listener>) -> Self {
        let connection = connected(url, patient()).await;
        let clock = Arc::clone(connection.clock());
        let mut janitor = Janitor::new(connection, settings);
        if let Some(listener) = listener {
            janitor = janitor.with_listener(listener);
        }
        Self { janitor, clock }
    }

    /// A pass whose successor is due soon.
    pub(crate) async fn quick(&mut self) -> PassReport {
        let until = self.clock.mono() + Duration::from_millis(50);
        self.janitor.pass_until(until).await.unwrap()
    }

    /// Runs passes until `is_over` holds.
    pub(crate) async fn passes(&mut self, what: &str, is_over: impl Fn(&PassReport) -> bool) -> PassReport {
        let give_up = self.clock.mono() + PATIENCE;
        loop {
            let report = self.quick().await;
            if is_over(&report) {
                return report;
            }
            assert!(
                self.clock.mono() < give_up,
                "timed out waiting until {what}: {report:?}"
            );
        }
    }
}

/// Calls `act` at the first notice that `when` matches.
pub(crate) fn at_first(
    when: impl Fn(&Notice<'_>) -> bool + Send + Sync + 'static,
    act: impl FnOnce() + Send + 'static,
) -> Listener {
    let act = Mutex::new(Some(act));
    Box::new(move |notice| {
        if when(notice)
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    })
}

pub(crate) fn is_settling(notice: &Notice<'_>) -> bool {
    matches!(notice, Notice::Settling { .. })
}

pub(crate) fn is_evicting(notice: &Notice<'_>) -> bool {
    matches!(notice, Notice::Evicting(_))
}

/// Runs a test on both servers.
pub(crate) async fn on_both<F>(settings: &[&str], test: impl Fn(Arc<World>) -> F)
where
    F: Future<Output = ()>,
{
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, settings) else {
            return;
        };
        test(world).await;
    }
}
