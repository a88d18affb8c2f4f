//! A server with rosters.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::loops::Loops;
use tenure::roster::{Rosters, RostersSettings};
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::ledger::{Ledger, MemoryLedger};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::jwt::Verifier;
use tenure_server::{Parts, RosterParts, Settings};
use tokio::runtime::Handle;

use crate::common::{Answer, Daemon};

/// The roster of the tests.
pub const R: &str = "/v1/rosters/support";

/// A server with rosters and their service, which runs under the loops of the server.
pub struct RosterServer {
    pub daemon: Daemon,
}

impl RosterServer {
    pub async fn open() -> Self {
        Self::with(None).await
    }

    pub async fn with(jwt: Option<Arc<Verifier>>) -> Self {
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
        let ledger: Arc<dyn Ledger> = MemoryLedger::new(Arc::clone(&clock));
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let settings = RostersSettings::default();
        let parts = (Arc::clone(&store), Arc::clone(&ledger), Arc::clone(&clock));
        let rosters = Rosters::start(parts.0, parts.1, parts.2, settings, &loops).expect("a service");
        let parts = Parts {
            loops,
            rosters: Some(RosterParts { rosters, ledger, jwt }),
            ..Parts::new(store, clock)
        };
        let daemon = Daemon::of(parts, Settings::default()).await;
        Self { daemon }
    }

    /// Sends something without a body.
    pub async fn post(&self, path: &str) -> Answer {
        let request = self.daemon.request("POST", &format!("{R}{path}"));
        Answer::read(request.send().await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.daemon.get(&format!("{R}{path}")).await
    }

    pub async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        self.daemon.send(method, &format!("{R}{path}"), body).await
    }

    /// Writes a provider down, with room for so many.
    #[track_caller]
    pub fn put(&self, provider: &str, capacity: u32) -> impl Future<Output = Value> + '_ {
        let path = format!("/providers/{provider}");
        async move {
            let answer = self.send("PUT", &path, json!({ "capacity": capacity })).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        }
    }

    /// Writes a provider down and takes it online.
    pub async fn seat(&self, provider: &str, capacity: u32) -> Value {
        self.put(provider, capacity).await;
        let answer = self.post(&format!("/providers/{provider}/online")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

/// Only the fields of an answer that are named, so that it can be compared with what is pinned.
pub fn of(value: &Value, names: &[&str]) -> Value {
    let fields = names.iter().map(|name| {
        let field = value.get(name).unwrap_or_else(|| panic!("no {name} in {value}"));
        ((*name).to_owned(), field.clone())
    });
    Value::Object(fields.collect())
}
