//! A roster on a server with a test clock, with access to its raw data.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::{Provider, RosterSettings, RosterStats, Version};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::roster::{
    Heartbeat, HeartbeatReply, MirrorEntry, MirroredProvider, Overwrite, Pending, Put, PutOutcome, RosterMirror,
};
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::ReconcileRequest;
use tenure_testkit::valkey::Flavour;

use crate::world::{TestClockStore, group};

pub(crate) const STALE: Duration = Duration::from_secs(6);

pub(crate) struct Rosters(TestClockStore);

impl Deref for Rosters {
    type Target = TestClockStore;

    fn deref(&self) -> &TestClockStore {
        &self.0
    }
}

pub(crate) fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).unwrap()
}

/// A row with capacity two.
pub(crate) fn row(name: &str, version: u64, online: Option<&TenureId>) -> Provider {
    Provider {
        provider: provider(name),
        display_name: Some(format!("{name} | \u{e9}")),
        active: true,
        online: online.cloned(),
        capacity: 2,
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(version),
    }
}

pub(crate) fn gone(name: &str, version: u64) -> MirrorEntry {
    MirrorEntry::Gone {
        provider: provider(name),
        version: Version(version),
    }
}

impl Rosters {
    pub(crate) async fn new(flavour: Flavour) -> Self {
        Self(TestClockStore::new(flavour).await)
    }

    pub(crate) async fn put(&self, entry: MirrorEntry) -> PutOutcome {
        let puts = [Put::newer(entry)];
        let put = self.store.put_providers(&group(), &puts, Call::default()).await;
        put.unwrap()[0]
    }

    pub(crate) async fn seat(&self, name: &str) -> TenureId {
        let names = [provider(name)];
        let seated = self
            .store
            .ensure_tenures(&group(), &names, STALE, true, Call::default())
            .await;
        seated.unwrap().remove(0).tenure
    }

    /// Puts a provider online and writes a row that says so.
    pub(crate) async fn online(&self, name: &str, version: u64) -> TenureId {
        let tenure = self.seat(name).await;
        self.put(MirrorEntry::Row(row(name, version, Some(&tenure)))).await;
        tenure
    }

    pub(crate) async fn leave(&self, tenure: &TenureId) {
        let left = self.store.end(&group(), tenure, EndBy::Leave, Call::default()).await;
        left.unwrap();
    }

    pub(crate) async fn hear(&self, name: &str) -> HeartbeatReply {
        let heard = [Heartbeat::of(provider(name))];
        self.store.heartbeat(&group(), &heard).await.unwrap().replies[0]
    }

    pub(crate) async fn seen(&self, name: &str) -> Option<MirroredProvider> {
        let looked = self.store.look(&group(), &[provider(name)]).await;
        looked.unwrap().providers.remove(0)
    }

    pub(crate) async fn available(&self) -> Vec<String> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let ranked = self.store.available(&group(), &page).await.unwrap();
        let counted = self.store.availability(&group(), Duration::ZERO).await.unwrap();
        let mut names: Vec<String> = ranked.candidates.iter().map(|free| free.provider.to_string()).collect();
        assert_eq!(counted.count, names.len() as u64, "{names:?}");
        names.sort();
        names
    }

    pub(crate) async fn stats(&self) -> RosterStats {
        self.store.roster_stats(&group()).await.unwrap().stats
    }

    pub(crate) async fn pending(&self) -> Pending {
        let pending = self.store.pending_offline(&group(), 100, false, Call::default()).await;
        pending.unwrap()
    }

    pub(crate) async fn settle_at(&self, version: u64, stale_after: Duration) {
        let settings = RosterSettings {
            stale_after,
            version: Version(version),
            ..RosterSettings::default()
        };
        let put = self
            .store
            .put_roster_settings(&group(), &settings, Overwrite::Older, Call::default())
            .await;
        assert!(put.unwrap());
    }

    /// Verifies the whole mirror in parts of `limit`; returns the entries and the repairs.
    pub(crate) async fn verify(&self, limit: u32) -> (Vec<MirrorEntry>, BTreeMap<String, u64>) {
        let (mut after, mut entries, mut repaired, mut parts) = (None, Vec::new(), BTreeMap::new(), 0);
        loop {
            let request = ReconcileRequest { after, limit };
            let part = self.store.verify_roster(&group(), &request, Call::default()).await;
            let part = part.unwrap();
            assert!(part.entries.len() <= limit as usize);
            entries.extend(part.entries);
            for (kind, count) in part.repaired {
                *repaired.entry(kind).or_default() += count;
            }
            parts += 1;
            assert!(parts < 10_000, "it comes to an end");
            after = part.next;
            if after.is_none() {
                entries.sort_by(|a: &MirrorEntry, b| a.provider().cmp(b.provider()));
                entries.dedup();
                return (entries, repaired);
            }
        }
    }

    /// All keys except the test's own.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = self.run(&["KEYS", "*"]).texts();
        keys.sort();
        keys
    }
}
