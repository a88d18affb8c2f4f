//! Sessions on a server whose clock a test sets, and a hand that reaches into its data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_core::id::{Alias, ConnectionId, SessionId, TenureId};
use tenure_core::session::{
    Attach, AttachOutcome, Data, Detach, DetachOutcome, Session, SessionSettings, SessionState, SessionStore,
};
use tenure_core::store::{Call, PageRequest, StoreOptions};
use tenure_core::sweep::{BATCH, ReapedBatch, ReconcileRequest, ReleaseRequest, SweepSteps};
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::{ConnectionOptions, ValkeyStore};

use crate::world::{PATIENCE, group, mature, server};

const BEGIN: u64 = 1_763_676_800_000_000;
pub(crate) const GRACE: Duration = Duration::from_secs(60);

pub(crate) struct Sessions {
    pub(crate) server: Server,
    pub(crate) store: Arc<ValkeyStore>,
    now: AtomicU64,
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn connection(name: &str) -> ConnectionId {
    ConnectionId::new(name).unwrap()
}

/// A key of the group.
pub(crate) fn key_of(suffix: &str) -> String {
    format!("{{tenure:ingest}}:{suffix}")
}

/// Opens a store on a server with a clock that is set by hand.
pub(crate) async fn open_at(url: &str, sessions: SessionSettings) -> Arc<ValkeyStore> {
    let connection = ConnectionOptions {
        test_clock: true,
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ..ConnectionOptions::default()
    };
    let options = StoreOptions {
        sessions,
        ..StoreOptions::default()
    };
    ValkeyStore::open(url, options, connection, SystemClock::shared())
        .await
        .expect("a good URL")
}

impl Sessions {
    pub(crate) async fn new(flavour: Flavour) -> Self {
        let server = server(flavour, &[]);
        mature(&server);
        server.cli(&["SET", "tenure:test:now", &BEGIN.to_string()]).unwrap();
        let store = open_at(&server.url(), SessionSettings::default()).await;
        Self {
            server,
            store,
            now: AtomicU64::new(BEGIN),
        }
    }

    /// Lets time pass while the store serves.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(Duration::from_millis(400));
            left -= step;
            let by = u64::try_from(step.as_micros()).unwrap();
            let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
            self.run(&["SET", "tenure:test:now", &now.to_string()]);
            self.store.tick(&group()).await.unwrap();
        }
    }

    /// A command of somebody else's.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Reply {
        let reply = self.server.cli(args).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
        reply
    }

    pub(crate) async fn attach(&self, tenure: &TenureId, of: &str, name: &str, alias: Option<&str>) -> Session {
        let attach = Attach {
            alias: alias.map(|alias| Alias::new(alias).unwrap()),
            data: [("of".to_owned(), serde_json_text(of))].into(),
            ..Attach::new(session(of), connection(name))
        };
        let attached = self
            .store
            .attach(&group(), tenure, &[attach], Call::default())
            .await
            .unwrap();
        match attached.outcomes.into_iter().next() {
            Some(AttachOutcome::Attached { session, .. }) => *session,
            other => panic!("{of}/{name}: {other:?}"),
        }
    }

    pub(crate) async fn detach(&self, tenure: &TenureId, of: &str, name: &str) -> DetachOutcome {
        let asked = [Detach {
            session: session(of),
            connection: connection(name),
            epoch: None,
        }];
        let detached = self.store.detach(&group(), tenure, &asked, Call::default()).await;
        detached.unwrap().remove(0)
    }

    pub(crate) async fn reap(&self) -> ReapedBatch {
        let request = ReleaseRequest {
            pass: "p".to_owned(),
            limit: BATCH,
            force: false,
        };
        self.store.reap(&group(), &request, Call::default()).await.unwrap()
    }

    pub(crate) async fn seen(&self, name: &str) -> Option<Session> {
        self.store.session(&group(), &session(name)).await.unwrap()
    }

    /// All sessions of a state, or of all.
    pub(crate) async fn listed(&self, state: Option<SessionState>) -> Vec<String> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let page = self.store.sessions(&group(), state, &page).await.unwrap();
        let mut names: Vec<_> = page.items.iter().map(|seen| seen.session.to_string()).collect();
        names.sort();
        names
    }

    /// A whole reconcile, in parts of `limit`: what it repaired.
    pub(crate) async fn reconcile(&self, limit: u32) -> BTreeMap<String, u64> {
        let (mut after, mut repaired, mut parts) = (None, BTreeMap::new(), 0);
        loop {
            let request = ReconcileRequest { after, limit };
            let part = self.store.reconcile(&group(), &request, Call::default()).await.unwrap();
            for (kind, count) in part.repaired {
                *repaired.entry(kind).or_default() += count;
            }
            parts += 1;
            assert!(parts < 10_000, "it comes to an end");
            after = part.next;
            if after.is_none() {
                return repaired;
            }
        }
    }

    /// All keys that there are, but the test's own.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = self.run(&["KEYS", "*"]).texts();
        keys.sort();
        keys
    }

    pub(crate) fn data_of(of: &str) -> Data {
        [("of".to_owned(), serde_json_text(of))].into()
    }
}

fn serde_json_text(text: &str) -> serde_json::Value {
    serde_json::Value::String(text.to_owned())
}
