//! Sessions on a server with a test clock, with access to its raw data.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use tenure_core::id::{Alias, ConnectionId, SessionId, TenureId};
use tenure_core::session::{Attach, AttachOutcome, Data, Detach, DetachOutcome, Session, SessionState, SessionStore};
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::{BATCH, ReapedBatch, ReconcileRequest, ReleaseRequest, SweepSteps};
use tenure_testkit::valkey::Flavour;

use crate::world::{TestClockStore, group};

pub(crate) const GRACE: Duration = Duration::from_secs(60);

pub(crate) struct Sessions(TestClockStore);

impl Deref for Sessions {
    type Target = TestClockStore;

    fn deref(&self) -> &TestClockStore {
        &self.0
    }
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn connection(name: &str) -> ConnectionId {
    ConnectionId::new(name).unwrap()
}

impl Sessions {
    pub(crate) async fn new(flavour: Flavour) -> Self {
        Self(TestClockStore::new(flavour).await)
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

    /// All sessions, or those in one state.
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

    /// A whole reconcile in parts of `limit`; returns the repairs.
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

    /// All keys except the test's own.
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
