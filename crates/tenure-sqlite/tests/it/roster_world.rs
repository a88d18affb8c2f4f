//! A roster on a real file, and short words for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::ledger::{Provider, RosterStats, Version};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::pulse::BeatPulse;
use tenure_core::roster::{
    Heartbeat, HeartbeatReply, MirrorEntry, MirroredProvider, Pending, Put, PutOutcome, RosterMirror, Verified,
};
use tenure_core::store::Store as _;
use tenure_core::store::{Backend, Call, PageRequest};
use tenure_core::sweep::{BATCH, GroupStatus, ReconcileRequest, SweepSteps};
use tenure_core::{Group, ProviderId, TenureId};
use tenure_sqlite::SqliteStore;

use crate::common::{manual, open, s};

/// The ttl of providers here.
pub(crate) const STALE: Duration = s(6);

pub(crate) struct World {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) group: Group,
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

pub(crate) fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a name")
}

/// A row with room for two.
pub(crate) fn row(name: &str, version: u64, online: Option<&TenureId>) -> Provider {
    Provider {
        provider: provider(name),
        display_name: Some(format!("{name} \u{e9}")),
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

pub(crate) fn gone(name: &str, version: u64) -> Put {
    Put::newer(MirrorEntry::Gone {
        provider: provider(name),
        version: Version(version),
    })
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, clock) = (dir.path().join("tenure.db"), manual());
        Self {
            store: open(&path, &clock),
            clock,
            group: Group::new("roster.desk").expect("a name"),
            path,
            _dir: dir,
        }
    }

    /// Closes the file, does something to it, and opens it again.
    pub(crate) async fn restart(&mut self, meanwhile: &str) {
        self.store.close().await;
        if !meanwhile.is_empty() {
            let sql = rusqlite::Connection::open(&self.path).expect("a file that can be edited");
            sql.execute_batch(meanwhile).expect(meanwhile);
            sql.close().expect("a file that can be edited");
        }
        self.store = open(&self.path, &self.clock);
    }

    pub(crate) async fn puts(&self, puts: &[Put]) -> Vec<PutOutcome> {
        let put = self.store.put_providers(&self.group, puts, Call::default()).await;
        put.expect("an answer")
    }

    pub(crate) async fn put(&self, row: Provider) -> PutOutcome {
        self.puts(&[Put::newer(MirrorEntry::Row(row))]).await[0]
    }

    pub(crate) async fn seat(&self, name: &str) -> TenureId {
        let names = [provider(name)];
        let seated = self
            .store
            .ensure_tenures(&self.group, &names, STALE, true, Call::default())
            .await;
        seated.expect("a seat").remove(0).tenure
    }

    /// Online, with a row that says so.
    pub(crate) async fn online(&self, name: &str, version: u64) -> TenureId {
        let tenure = self.seat(name).await;
        self.put(row(name, version, Some(&tenure))).await;
        tenure
    }

    pub(crate) async fn hear(&self, name: &str) -> HeartbeatReply {
        let heard = [Heartbeat::of(provider(name))];
        let heard = self.store.heartbeat(&self.group, &heard).await;
        heard.expect("an answer").replies[0]
    }

    pub(crate) async fn seen(&self, name: &str) -> Option<MirroredProvider> {
        let looked = self.store.look(&self.group, &[provider(name)]).await;
        looked.expect("a look-up").providers.remove(0)
    }

    pub(crate) async fn leave(&self, tenure: &TenureId) {
        let left = self.store.end(&self.group, tenure, EndBy::Leave, Call::default()).await;
        left.expect("an end");
    }

    pub(crate) async fn tick(&self) -> GroupStatus {
        self.store.beat_pulse(BeatPulse::default()).await.expect("a pulse");
        self.store.tick(&self.group).await.expect("a tick")
    }

    /// Lets time pass while the store serves.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = (self.tick().await.gap / 3).min(left);
            self.clock.advance(step);
            left -= step;
        }
        self.tick().await;
    }

    pub(crate) async fn end_lapsed(&self) {
        while self
            .store
            .end_lapsed(&self.group, BATCH, Call::default())
            .await
            .expect("a step")
            .more()
        {}
    }

    /// The available providers, in order.
    pub(crate) async fn available(&self) -> Vec<String> {
        let mut page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let mut names = Vec::new();
        loop {
            let ranked = self.store.available(&self.group, &page).await.expect("a page");
            names.extend(ranked.candidates.iter().map(|free| free.provider.to_string()));
            page.after = ranked.next;
            if page.after.is_none() {
                return names;
            }
        }
    }

    pub(crate) async fn stats(&self) -> (RosterStats, u64) {
        let stats = self.store.roster_stats(&self.group).await.expect("counts");
        (stats.stats, stats.pending)
    }

    pub(crate) async fn pending(&self) -> Pending {
        let pending = self.store.pending_offline(&self.group, 1_000, false, Call::default());
        pending.await.expect("an answer")
    }

    pub(crate) async fn done(&self, tenures: &[TenureId]) -> u64 {
        let done = self.store.offline_done(&self.group, tenures, Call::default()).await;
        done.expect("an answer")
    }

    /// Goes through everything in parts of so many: what is there, and what was mended.
    pub(crate) async fn verify(&self, limit: u32) -> (Vec<MirrorEntry>, Vec<(String, u64)>) {
        let (mut entries, mut repaired) = (Vec::new(), std::collections::BTreeMap::new());
        let mut request = ReconcileRequest { after: None, limit };
        loop {
            let part = self.store.verify_roster(&self.group, &request, Call::default()).await;
            let part: Verified = part.expect("a part");
            entries.extend(part.entries);
            for (kind, count) in part.repaired {
                *repaired.entry(kind).or_insert(0) += count;
            }
            request.after = part.next;
            if request.after.is_none() {
                return (entries, repaired.into_iter().collect());
            }
        }
    }
}
