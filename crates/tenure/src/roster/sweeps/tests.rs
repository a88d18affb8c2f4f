//! The sweeps of several processes over one store and one ledger, on a manual clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{EngagementId, ProviderId, RosterName, TenureId, Term};
use tenure_core::ledger::{
    Change, Ledger, MemoryLedger, NewEngagement, Provider, ProviderSpec, Reason, SettingsPatch, Status, Version,
};
use tenure_core::membership::{EndBy, EndReason, MembershipStore};
use tenure_core::memory::MemoryStore;
use tenure_core::roster::{MirrorEntry, Overwrite, Put, group_of};
use tenure_core::store::{Call, PageRequest, Store, StoreOptions};
use tokio::runtime::Handle;

use super::super::state::RosterState;
use super::super::status::Sweep;
use super::super::{Belief, HeartbeatOutcome, Online, Roster, Rosters, RostersSettings, Source};
use super::Visit;
use super::sweep_loop::{RosterSweep, SweepLoop};
use crate::loops::{LoopBody, Loops};
use crate::sweeper::{Sweeper, SweeperSettings};
use crate::testing::{Fault, Faulty, START, Telemetry, Verb, beat_pulse_of, ms, pass, pass_until, secs};

/// `stale_after`, in these tests.
const STALE: Duration = secs(10);

struct World {
    clock: Arc<ManualClock>,
    store: Arc<Faulty>,
    ledger: Arc<MemoryLedger>,
    processes: Vec<Process>,
    ears: Telemetry,
}

struct Process {
    rosters: Rosters,
    _sweeper: Sweeper,
    loops: Loops,
}

fn memory(clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    MemoryStore::after_loss(StoreOptions::default(), Arc::clone(clock) as Arc<dyn Clock>)
}

fn care() -> RosterName {
    RosterName::new("care").unwrap()
}

fn name(n: usize) -> ProviderId {
    ProviderId::new(format!("p{n:03}")).unwrap()
}

async fn world(processes: usize) -> World {
    let clock = Arc::new(ManualClock::new(START, 7));
    let store = Faulty::new(memory(&clock), clock.clone());
    let ledger = MemoryLedger::new(clock.clone());
    let patch = SettingsPatch {
        stale_after: Some(STALE),
        ..SettingsPatch::default()
    };
    ledger.set_settings(&care(), &patch).await.unwrap();
    let mut world = World {
        clock,
        store,
        ledger,
        processes: Vec::new(),
        ears: Telemetry::default(),
    };
    for _ in 0..processes {
        world.start();
    }
    world
}

impl World {
    fn start(&mut self) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let store: Arc<dyn Store> = self.store.clone();
        beat_pulse_of(Arc::clone(&store), &loops);
        let sweeper = Sweeper::start(
            Arc::clone(&store),
            Arc::clone(&clock),
            SweeperSettings::default(),
            &loops,
        );
        let sweeper = sweeper.unwrap();
        let ledger: Arc<dyn Ledger> = self.ledger.clone();
        let rosters = Rosters::start(store, ledger, clock, RostersSettings::default(), &loops).unwrap();
        rosters.follow(&sweeper);
        self.processes.push(Process {
            rosters,
            _sweeper: sweeper,
            loops,
        });
    }

    fn roster(&self, process: usize) -> Roster {
        self.processes[process].rosters.roster(&care()).unwrap()
    }

    fn believes(&self, process: usize) -> bool {
        let status = self.processes[process].rosters.status();
        let believed = status.rosters.iter().all(|roster| roster.belief == Belief::Mirror);
        believed && !status.rosters.is_empty()
    }

    /// Disconnects the hot store, or reconnects it. Rosters fail immediately: callers in these tests do not advance the
    /// clock while they wait.
    fn cut(&self, cut: bool) {
        self.store.cut(cut);
        self.store
            .always(Verb::Mirror, cut.then_some(Fault::Fail(ErrorKind::Unavailable)));
    }

    async fn all_believe(&self) {
        let all = || (0..self.processes.len()).all(|process| self.believes(process));
        pass_until(&self.clock, "the mirror is believed", secs(30), all).await;
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    /// Creates providers with room for one and takes them online.
    async fn online(&self, names: std::ops::Range<usize>) {
        for n in names {
            let roster = self.roster(n % self.processes.len());
            roster.put_provider(&name(n), &ProviderSpec::default()).await.unwrap();
            let online = roster.online(&name(n)).await.unwrap();
            assert!(matches!(online, Online::Done(_)), "{online:?}");
        }
    }

    /// Advances the clock while these send heartbeats.
    async fn hear(&self, names: &[usize], time: Duration) {
        let end = self.clock.mono() + time;
        while self.clock.mono() < end {
            for n in names {
                let heard = self.roster(n % self.processes.len()).heartbeat(&name(*n), None).await;
                assert!(matches!(heard, Ok(HeartbeatOutcome::Recorded(_))), "{heard:?}");
            }
            self.pass((STALE / 4).min(end.since(self.clock.mono()))).await;
        }
    }

    async fn row(&self, n: usize) -> Provider {
        self.ledger.provider(&care(), &name(n)).await.unwrap().expect("a row")
    }

    async fn offline_entries(&self) -> Vec<(ProviderId, Reason)> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let log = self.ledger.log(&care(), None, &page).await.unwrap().items;
        let offline = log.into_iter().filter(|entry| entry.change == Change::Offline);
        offline.map(|entry| (entry.provider, entry.reason)).collect()
    }

    /// The mirror's rows without heartbeats, for comparison with the ledger's.
    async fn mirrored(&self) -> Vec<Provider> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let group = group_of(&care()).unwrap();
        let rows = self.store.mirror().unwrap().rows(&group, &page).await.unwrap().rows;
        let bare = |seen: tenure_core::roster::MirroredProvider| Provider {
            last_heartbeat_at: None,
            ..seen.row
        };
        let mut rows: Vec<Provider> = rows.into_iter().map(bare).collect();
        rows.sort_by(|a, b| a.provider.cmp(&b.provider));
        rows
    }

    async fn written(&self) -> Vec<Provider> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let rows = self.ledger.providers(&care(), None, &page).await.unwrap().items;
        let bare = |row: Provider| Provider {
            last_heartbeat_at: None,
            ..row
        };
        rows.into_iter().map(bare).collect()
    }
}

/// R2.8: when it becomes stale, once, however many processes there are.
#[tokio::test]
async fn stale_provider_goes_offline_in_the_ledger_once() {
    let world = world(3).await;
    let _listening = world.ears.listen();
    world.all_believe().await;
    world.online(0..30).await;
    let dead: Vec<usize> = (0..10).collect();
    let alive: Vec<usize> = (10..30).collect();
    world.hear(&alive, STALE + ms(500)).await;
    let offline = world.offline_entries().await;
    assert_eq!(offline.len(), dead.len(), "{offline:?}");
    let lapsed = Reason::Ended(EndReason::Lapsed);
    assert!(offline.iter().all(|(_, reason)| *reason == lapsed), "{offline:?}");
    let ears = world
        .ears
        .count("tenure_roster_offline_total{roster=\"care\",reason=\"lapsed\"}");
    assert_eq!(ears, 10);
    for n in dead {
        let row = world.row(n).await;
        assert!(row.online.is_none() && row.active);
        let (went, heard) = (row.last_offline_at.unwrap(), row.last_heartbeat_at.unwrap());
        assert_eq!(went, heard + STALE, "it ended at its end time");
    }
    let status = world.processes[0].rosters.status();
    assert_eq!(status.rosters[0].dirty, 0);
    world.pass(secs(1)).await;
    assert_eq!(world.mirrored().await, world.written().await);
}

/// Their heartbeats reach a process that is cut off from the hot store and records them in the ledger.
#[tokio::test]
async fn heartbeats_in_the_ledger_keep_providers_online() {
    let world = world(2).await;
    world.all_believe().await;
    world.online(0..6).await;
    for _ in 0..8 {
        world.pass(STALE / 4).await;
        let now = world.ledger.now().await.unwrap();
        let beats: Vec<_> = (0..4).map(|n| (name(n), now)).collect();
        world.ledger.record_heartbeats(&care(), &beats).await.unwrap();
    }
    let offline: Vec<_> = world.offline_entries().await.into_iter().map(|(who, _)| who).collect();
    assert_eq!(offline, [name(4), name(5)]);
    let status = world.roster(0).stats().await.unwrap().value;
    assert_eq!((status.online, status.available), (4, 4), "the mirror has them too");
    world.pass(STALE * 2 + secs(1)).await;
    assert_eq!(world.offline_entries().await.len(), 6, "they fell silent");
}

/// The end of an earlier tenure does not take a returned provider offline.
#[tokio::test]
async fn returned_provider_stays_online() {
    let world = world(2).await;
    world.all_believe().await;
    world.online(0..1).await;
    let first = world.row(0).await.online.unwrap();
    let group = group_of(&care()).unwrap();
    // Its tenure ends and it goes online again before the ledger follows.
    let ended = world.store.end(&group, &first, EndBy::Leave, Call::default());
    ended.await.unwrap();
    let online = world.roster(1).online(&name(0)).await.unwrap();
    assert!(matches!(online, Online::Done(_)));
    world.hear(&[0], secs(3)).await;
    let row = world.row(0).await;
    assert!(row.online.is_some_and(|second| second != first));
    assert_eq!(world.offline_entries().await, Vec::new());
}

/// R2.9: at most a minute of heartbeats is only in the hot store.
#[tokio::test]
async fn one_process_records_heartbeats_once_a_minute() {
    let world = world(3).await;
    world.all_believe().await;
    world.online(0..6).await;
    let alive: Vec<usize> = (0..6).collect();
    world.hear(&alive, secs(190)).await;
    let now = world.ledger.now().await.unwrap();
    for n in 0..6 {
        let heard = world.row(n).await.last_heartbeat_at.expect("it is recorded");
        assert!(now.since(heard) <= secs(72), "{:?}", now.since(heard));
    }
    let age = |process: &Process| process.rosters.status().rosters[0].sweeps.heartbeats;
    let ages: Vec<_> = world.processes.iter().map(age).collect();
    assert!(
        ages.iter().all(|age| age.is_some_and(|age| age <= secs(67))),
        "{ages:?}"
    );
}

/// R2.10: an empty mirror is filled; providers that went online without a hot store get tenures.
#[tokio::test]
async fn empty_mirror_is_filled_and_ledger_tenures_are_replaced() {
    let mut world = world(0).await;
    for n in 0..450 {
        world
            .ledger
            .put_provider(&care(), &name(n), &ProviderSpec::default())
            .await
            .unwrap();
        world.ledger.go_online(&care(), &name(n), None).await.unwrap();
    }
    for _ in 0..5 {
        world.start();
    }
    world.all_believe().await;
    world.pass(secs(1)).await;
    let available = world.roster(3).availability().await.unwrap();
    assert_eq!((available.value.count, available.source), (450, Source::Mirror));
    let rows = world.written().await;
    assert_eq!(world.mirrored().await, rows);
    let group = group_of(&care()).unwrap();
    for row in rows {
        let member = world
            .store
            .member(&group, &row.provider.member())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(Some(member.tenure), row.online);
    }
    assert_eq!(world.offline_entries().await, Vec::new());
}

/// R2.10: the hot store loses all its data. No provider goes offline.
#[tokio::test]
async fn store_that_lost_its_data_is_refilled() {
    let world = world(5).await;
    let _listening = world.ears.listen();
    world.all_believe().await;
    world.online(0..40).await;
    let alive: Vec<usize> = (0..40).collect();
    world.hear(&alive, secs(5)).await;
    world.cut(true);
    world.pass(secs(30)).await;
    assert!((0..5).all(|process| !world.believes(process)));
    world.store.swap(memory(&world.clock));
    world.cut(false);
    world.all_believe().await;
    world.hear(&alive, secs(30)).await;
    assert_eq!(world.offline_entries().await, Vec::new());
    assert_eq!(world.mirrored().await, world.written().await);
    let available = world.roster(0).availability().await.unwrap();
    assert_eq!((available.value.count, available.source), (40, Source::Mirror));
}

/// R2.10: foreign writes to the mirror are replaced by the ledger's rows.
#[tokio::test]
async fn foreign_writes_to_the_mirror_are_repaired() {
    let world = world(2).await;
    let _listening = world.ears.listen();
    world.all_believe().await;
    world.online(0..30).await;
    let (group, good) = (group_of(&care()).unwrap(), world.written().await);
    let mut puts = Vec::new();
    for (n, row) in good.iter().enumerate() {
        let mut bad = row.clone();
        let over = Overwrite::Exactly(row.version);
        match n % 5 {
            0 => bad.capacity = 77,
            1 => (bad.active, bad.version) = (false, Version(row.version.0 + 1_000_000)),
            2 => bad.online = Some(TenureId::new(row.provider.member(), Term::new(5).unwrap())),
            3 => bad.version = Version(row.version.0 - 1),
            _ => {
                let (provider, version) = (row.provider.clone(), Version(row.version.0 + 9));
                let entry = MirrorEntry::Gone { provider, version };
                puts.push(Put { entry, over });
                continue;
            }
        }
        let entry = MirrorEntry::Row(bad);
        puts.push(Put { entry, over });
    }
    let stray = Provider {
        provider: ProviderId::new("stray").unwrap(),
        online: None,
        ..good[0].clone()
    };
    puts.push(Put::newer(MirrorEntry::Row(stray)));
    let mirror = world.store.mirror().unwrap();
    let put = mirror.put_providers(&group, &puts, Call::default()).await.unwrap();
    assert!(put.iter().all(|put| put.applied));
    assert_ne!(world.mirrored().await, good);
    let alive: Vec<usize> = (0..0).collect();
    world.hear(&alive, secs(1)).await;
    let everyone: Vec<ProviderId> = good.iter().map(|row| row.provider.clone()).collect();
    let end = world.clock.mono() + secs(340);
    while world.clock.mono() < end {
        // Heartbeats continue; those of corrupted rows are refused until the rows are repaired.
        for provider in &everyone {
            world.roster(0).heartbeat(provider, None).await.unwrap();
        }
        world.pass(STALE / 4).await;
    }
    let (mirrored, written) = (world.mirrored().await, world.written().await);
    assert_eq!(mirrored, written);
    // One process found the differences, and the other has reconciled since: the metric is back at 0.
    world.pass(secs(700)).await;
    for process in &world.processes {
        let found = process.rosters.status().rosters[0].divergence;
        assert!(found.is_none_or(|found| found == 0), "{found:?}");
    }
    assert!(world.ears.gauge("tenure_roster_divergence{roster=\"care\"}") < 0.1);
}

/// A count of differences expires when another process reconciles later.
#[tokio::test]
async fn differences_are_forgotten_when_another_process_finds_none() {
    let mut world = world(1).await;
    world.all_believe().await;
    let process = &world.processes[0];
    let found = || process.rosters.status().rosters[0].divergence;
    let state = Arc::clone(&world.roster(0).state);
    let mirror = world.store.mirror().unwrap();
    let stamp = mirror.mirror_status(&group_of(&care()).unwrap()).await.unwrap();
    let done_at = stamp.as_of;
    state.reconciled(&stamp, 3, world.clock.mono());
    assert_eq!(found(), Some(3));
    state.last_reconciled(done_at, world.clock.mono());
    state.last_reconciled(done_at, world.clock.mono());
    assert_eq!(found(), Some(3), "that was its own reconcile");
    state.last_reconciled(done_at + ms(1), world.clock.mono());
    assert_eq!(found(), None);
    state.reconciled(&stamp, 0, world.clock.mono());
    assert_eq!(found(), Some(0));
    world.processes.clear();
}

/// Invariant 14: a failure in the visit of one roster does not affect the others.
#[tokio::test]
async fn failing_visit_stops_no_other_visit() {
    let world = world(1).await;
    world.all_believe().await;
    let rosters = ["a", "b", "c", "d"].map(|name| RosterName::new(name).unwrap());
    for roster in &rosters {
        let handle = world.processes[0].rosters.roster(roster).unwrap();
        handle.put_provider(&name(1), &ProviderSpec::default()).await.unwrap();
    }
    let visited = Visited::default();
    let inner = Arc::clone(&world.roster(0).inner);
    let mut round = SweepLoop::new(inner, "x".to_owned(), secs(10), visited.clone());
    let turn = std::panic::AssertUnwindSafe(round.turn());
    assert!(
        futures_util::FutureExt::catch_unwind(turn).await.is_err(),
        "the panic reaches the loop"
    );
    assert_eq!(visited.take(), ["a", "b", "c", "care", "d"]);
    visited.0.panics.store(false, Ordering::SeqCst);
    let turn = round.turn().await.unwrap();
    assert_eq!(
        (turn.skipped, visited.take()),
        (1, ["a", "b", "c", "care", "d"].map(str::to_owned).to_vec())
    );
}

/// Records its visits. Panics at `a` and fails at `b`.
#[derive(Clone, Default)]
struct Visited(Arc<Notes>);

struct Notes {
    panics: AtomicBool,
    names: Mutex<Vec<String>>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            panics: AtomicBool::new(true),
            names: Mutex::default(),
        }
    }
}

impl Visited {
    fn take(&self) -> Vec<String> {
        let mut names = std::mem::take(&mut *self.0.names.lock().unwrap());
        names.sort();
        names
    }
}

#[async_trait]
impl RosterSweep for Visited {
    const SWEEP: Sweep = Sweep::Expiry;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let name = visit.state.roster().to_string();
        self.0.names.lock().unwrap().push(name.clone());
        match name.as_str() {
            "a" if self.0.panics.load(Ordering::SeqCst) => panic!("made to panic"),
            "b" => Err(Error::new(ErrorKind::Unavailable, "made to fail")),
            _ => {
                // Takes longer than the visit that panics.
                tokio::task::yield_now().await;
                Ok(secs(1))
            }
        }
    }

    fn is_early(&self, _: &RosterState) -> bool {
        false
    }
}

/// M6: a ledger that lost all its data, or the wrong one.
#[tokio::test]
async fn empty_ledger_removes_no_provider() {
    let world = world(1).await;
    let _listening = world.ears.listen();
    let (group, mirror) = (group_of(&care()).unwrap(), world.store.mirror().unwrap());
    let rows = (0..40).map(|n| Provider {
        provider: name(n),
        display_name: None,
        active: true,
        online: None,
        capacity: 1,
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(n as u64 + 1),
    });
    let puts: Vec<Put> = rows.map(|row| Put::newer(MirrorEntry::Row(row))).collect();
    mirror.put_providers(&group, &puts, Call::default()).await.unwrap();
    world.pass(secs(700)).await;
    assert_eq!(world.mirrored().await.len(), 40);
    assert!(world.ears.lines("ERROR the ledger has no provider") >= 2);
}

/// R2.2: engagements expire, and their providers have room again.
#[tokio::test]
async fn engagement_expires_in_time() {
    let world = world(2).await;
    world.all_believe().await;
    world.online(0..1).await;
    let engagement = NewEngagement {
        engagement: EngagementId::new("ride").unwrap(),
        provider: Some(name(0)),
        status: Status::Active,
        expires_in: Some(secs(20)),
        active_for: None,
    };
    world.roster(0).create_engagement(&engagement).await.unwrap();
    world.hear(&[0], secs(19)).await;
    let free = world.roster(1).available(5).await.unwrap();
    assert_eq!(free.value.len(), 0);
    world.hear(&[0], secs(2)).await;
    let row = world
        .ledger
        .engagement(&care(), &engagement.engagement)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.status, Status::Expired);
    let free = world.roster(1).available(5).await.unwrap();
    assert_eq!((free.value.len(), free.source), (1, Source::Mirror));
}

/// At its end, not at the next visit of the sweep, whichever process wrote it.
#[tokio::test]
async fn short_engagement_expires_in_time() {
    let world = world(2).await;
    world.all_believe().await;
    world.online(0..2).await;
    for n in 0..2 {
        let engagement = NewEngagement {
            engagement: EngagementId::new(format!("ride-{n}")).unwrap(),
            provider: Some(name(n)),
            status: Status::Active,
            expires_in: Some(secs(1)),
            active_for: None,
        };
        world.roster(n).create_engagement(&engagement).await.unwrap();
        world.pass(secs(1) + ms(50)).await;
        let row = world.ledger.engagement(&care(), &engagement.engagement).await.unwrap();
        assert_eq!(row.map(|row| row.status), Some(Status::Expired), "by process {n}");
    }
}

/// R2.8: after an outage of the hot store, no provider is stale.
#[tokio::test]
async fn hot_store_outage_takes_no_provider_offline() {
    let world = world(2).await;
    world.all_believe().await;
    world.online(0..20).await;
    let alive: Vec<usize> = (0..20).collect();
    world.hear(&alive, secs(4)).await;
    world.cut(true);
    world.hear(&alive, STALE * 3).await;
    world.cut(false);
    world.all_believe().await;
    world.hear(&alive, STALE * 2).await;
    assert_eq!(world.offline_entries().await, Vec::new());
    let names: Vec<String> = world.processes[0]
        .loops
        .snapshot()
        .into_iter()
        .map(|status| status.name)
        .collect();
    for name in [super::FOLLOW, super::HEARTBEATS, super::RECONCILE, super::EXPIRY] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
}
