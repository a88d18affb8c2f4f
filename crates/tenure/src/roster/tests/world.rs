//! A roster between a hot store and a ledger that both fail on request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure_core::call::{Reply, StoreRequest, Verb};
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{EngagementId, Group, ProviderId, RosterName, TenureId};
use tenure_core::ledger::{
    Candidate, Candidates, Dirty, EndedBatch, EndedTenure, Engagement, EngagementOutcome, ExpiredBatch, Follow,
    HeartbeatPass, HotStoreClaim, HotStoreOutcome, Ledger, LogEntry, MemoryLedger, Move, NewEngagement, OnlineOutcome,
    Overview, Provider, ProviderChange, ProviderSpec, ProviderState, RecordedHotStore, RemoveOutcome, ReserveOutcome,
    RosterSettings, RosterStats, SettingsPatch, Version,
};
use tenure_core::membership::MembershipStore;
use tenure_core::memory::MemoryStore;
use tenure_core::roster::{RosterMirror, group_of};
use tenure_core::store::middleware::Middleware;
use tenure_core::store::{Call, Finding, Health, Page, PageRequest, Store, StoreOptions};
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;

use super::super::*;
use crate::loops::Loops;
use crate::sweeper::{Sweeper, SweeperSettings};
use crate::testing::{START, beat_pulse_of, pass, pass_until, secs};

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a store or ledger behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Up,
    Fails,
    Hangs,
}

impl Mode {
    async fn pass(self) -> Result<()> {
        match self {
            Self::Up => Ok(()),
            Self::Fails => Err(Error::unavailable("made to fail", Outcome::Unchanged)),
            Self::Hangs => std::future::pending().await,
        }
    }
}

/// A hot store that can be disconnected, replaced, and delayed in one kind of call.
pub(super) struct Flaky {
    clock: Arc<ManualClock>,
    inner: Mutex<Arc<dyn Store>>,
    mode: Mutex<Mode>,
    delays: Mutex<BTreeMap<Verb, Vec<Duration>>>,
    /// The number of items of each call, per kind.
    calls: Mutex<BTreeMap<Verb, Vec<usize>>>,
}

impl Flaky {
    pub(super) fn be(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Replaces the inner store.
    pub(super) fn swap(&self, store: Arc<dyn Store>) {
        *self.inner.lock().unwrap() = store;
    }

    /// Delays the next call of this kind.
    pub(super) fn delay(&self, verb: Verb, by: Duration) {
        self.delays.lock().unwrap().entry(verb).or_default().push(by);
    }

    pub(super) fn calls(&self, verb: Verb) -> Vec<usize> {
        self.calls.lock().unwrap().get(&verb).cloned().unwrap_or_default()
    }
}

impl Middleware for Flaky {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.lock().unwrap())
    }

    async fn identity(&self) -> Result<Option<String>> {
        let mode = *self.mode.lock().unwrap();
        mode.pass().await?;
        self.store().identity().await
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        let verb = ask.op.verb();
        self.calls.lock().unwrap().entry(verb).or_default().push(ask.op.items());
        let mode = *self.mode.lock().unwrap();
        mode.pass().await?;
        let delay = self.delays.lock().unwrap().get_mut(&verb).and_then(Vec::pop);
        if let Some(delay) = delay {
            self.clock.sleep(delay).await;
        }
        self.store().call(ask).await
    }
}

/// A ledger that counts its calls and can be disconnected.
pub(super) struct Watched {
    inner: Arc<MemoryLedger>,
    clock: Arc<ManualClock>,
    mode: Mutex<Mode>,
    pace: Mutex<Duration>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    /// Every second call of this one fails.
    tripping: Mutex<Option<&'static str>>,
    running: AtomicUsize,
    most: AtomicUsize,
    total: AtomicU64,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watched {
    pub(super) fn be(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Makes every second call of this one fail; `None` for none.
    pub(super) fn trip(&self, name: Option<&'static str>) {
        *self.tripping.lock().unwrap() = name;
    }

    /// Sets how long every call takes.
    pub(super) fn take(&self, pace: Duration) {
        *self.pace.lock().unwrap() = pace;
    }

    pub(super) fn calls(&self, name: &str) -> u64 {
        self.calls.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// The number of all calls.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }

    /// The most concurrent calls.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(super) fn inside(&self) -> &MemoryLedger {
        &self.inner
    }

    async fn pass(&self, name: &'static str) -> Result<Running<'_>> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            let count = calls.entry(name).or_default();
            *count += 1;
            *count
        };
        if *self.tripping.lock().unwrap() == Some(name) && call % 2 == 0 {
            Mode::Fails.pass().await?;
        }
        self.total.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let running = Running(&self.running);
        let (mode, pace) = (*self.mode.lock().unwrap(), *self.pace.lock().unwrap());
        mode.pass().await?;
        if !pace.is_zero() {
            self.clock.sleep(pace).await;
        }
        Ok(running)
    }
}

macro_rules! watched {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl Ledger for Watched {
            fn place(&self) -> String {
                self.inner.place()
            }
            fn health(&self) -> Health {
                self.inner.health()
            }
            async fn examine(&self) -> Vec<Finding> {
                self.inner.examine().await
            }
            async fn close(&self) {
                self.inner.close().await;
            }
            async fn claim_hot_store(&self, claim: &HotStoreClaim) -> Result<HotStoreOutcome> {
                let mode = *self.mode.lock().unwrap();
                mode.pass().await?;
                self.inner.claim_hot_store(claim).await
            }
            async fn hot_store(&self) -> Result<Option<RecordedHotStore>> {
                self.inner.hot_store().await
            }
            $(
                async fn $name(&self $(, $argument: $type)*) -> Result<$answer> {
                    let _running = self.pass(stringify!($name)).await?;
                    self.inner.$name($($argument),*).await
                }
            )+
        }
    };
}

watched! {
    now() -> StoreTime;
    rosters() -> Vec<RosterName>;
    settings(roster: &RosterName) -> RosterSettings;
    set_settings(roster: &RosterName, patch: &SettingsPatch) -> RosterSettings;
    put_provider(roster: &RosterName, provider: &ProviderId, spec: &ProviderSpec) -> ProviderChange;
    remove_provider(roster: &RosterName, provider: &ProviderId) -> RemoveOutcome;
    provider(roster: &RosterName, provider: &ProviderId) -> Option<Provider>;
    providers_named(roster: &RosterName, providers: &[ProviderId]) -> BTreeMap<ProviderId, Provider>;
    providers(roster: &RosterName, state: Option<ProviderState>, page: &PageRequest) -> Page<Provider>;
    activate(roster: &RosterName, provider: &ProviderId) -> ProviderChange;
    deactivate(roster: &RosterName, provider: &ProviderId) -> ProviderChange;
    go_online(roster: &RosterName, provider: &ProviderId, tenure: Option<&TenureId>) -> OnlineOutcome;
    go_offline(roster: &RosterName, provider: &ProviderId, tenure: Option<&TenureId>) -> ProviderChange;
    offline_ended(roster: &RosterName, ended: &[EndedTenure]) -> EndedBatch;
    remove_closed(roster: &RosterName, age: Duration, limit: u32) -> u64;
    recount(roster: &RosterName) -> u64;
    follow_tenures(roster: &RosterName, follows: &[Follow]) -> Vec<Provider>;
    record_heartbeats(roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> u64;
    last_heartbeats(roster: &RosterName, providers: &[ProviderId]) -> BTreeMap<ProviderId, StoreTime>;
    want_heartbeats(rosters: &[RosterName], lasts: Duration) -> ();
    overview() -> Overview;
    note_heartbeat_pass(roster: &RosterName, fresh_since: StoreTime) -> ();
    heartbeat_pass(roster: &RosterName) -> Option<HeartbeatPass>;
    available(roster: &RosterName, page: &PageRequest, fresh_since: Option<StoreTime>) -> Page<Candidate>;
    stats(roster: &RosterName, fresh_since: Option<StoreTime>) -> RosterStats;
    log(roster: &RosterName, provider: Option<&ProviderId>, page: &PageRequest) -> Page<LogEntry>;
    create_engagement(roster: &RosterName, engagement: &NewEngagement) -> EngagementOutcome;
    move_engagement(roster: &RosterName, engagement: &EngagementId, to: &Move) -> EngagementOutcome;
    reserve(roster: &RosterName, new: &NewEngagement, candidates: &Candidates) -> ReserveOutcome;
    engagement(roster: &RosterName, engagement: &EngagementId) -> Option<Engagement>;
    expire_due(roster: &RosterName, limit: u32) -> ExpiredBatch;
    dirty(roster: &RosterName, limit: u32) -> Vec<Dirty>;
    dirty_counts() -> BTreeMap<RosterName, u64>;
    clean(roster: &RosterName, rows: &[(ProviderId, Version)]) -> u64;
    next_version() -> Version;
}

/// One process with its own access to the store and the ledger.
pub(super) struct Instance {
    pub(super) store: Arc<Flaky>,
    pub(super) ledger: Arc<Watched>,
    pub(super) rosters: Rosters,
    pub(super) desk: Roster,
    _loops: Loops,
}

/// Starts a process's rosters.
type Start = fn(Arc<dyn Store>, Arc<dyn Ledger>, Arc<dyn Clock>, RostersSettings, &Loops) -> Result<Rosters>;

/// The state that all processes share.
pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) memory: Arc<MemoryStore>,
    ledger: Arc<MemoryLedger>,
    pub(super) group: Group,
    _janitor: (Sweeper, Loops),
}

pub(super) fn name(name: &str) -> ProviderId {
    ProviderId::new(name).unwrap()
}

pub(super) fn desk() -> RosterName {
    RosterName::new("desk").unwrap()
}

impl World {
    /// A roster that the ledger knows and whose mirror is filled.
    pub(super) async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START, 11));
        let memory = MemoryStore::new(StoreOptions::default(), clock.clone());
        let ledger = MemoryLedger::new(clock.clone());
        let patch = SettingsPatch {
            default_capacity: Some(2),
            ..SettingsPatch::default()
        };
        ledger.set_settings(&desk(), &patch).await.unwrap();
        let group = group_of(&desk()).unwrap();
        let since = RosterMirror::mirror_status(&*memory, &group).await.unwrap().resumed_at;
        let marked = RosterMirror::mark_seeded(&*memory, &group, since, Call::default()).await;
        assert!(marked.unwrap());
        let loops = Loops::new(clock.clone(), Handle::current());
        // Another process, which is never disconnected: it takes beats, and has a janitor.
        beat_pulse_of(memory.clone(), &loops);
        let janitor = Sweeper::start(memory.clone(), clock.clone(), SweeperSettings::default(), &loops).unwrap();
        Self {
            clock,
            memory,
            ledger,
            group,
            _janitor: (janitor, loops),
        }
    }

    /// A process without sweeps.
    pub(super) fn start(&self) -> Instance {
        self.start_as(Rosters::start_without_sweeps)
    }

    /// A process with all its sweeps.
    pub(super) fn start_sweeping(&self) -> Instance {
        self.start_as(Rosters::start)
    }

    fn start_as(&self, start: Start) -> Instance {
        let store = Arc::new(Flaky {
            clock: self.clock.clone(),
            inner: Mutex::new(self.memory.clone()),
            mode: Mutex::default(),
            delays: Mutex::default(),
            calls: Mutex::default(),
        });
        let ledger = Arc::new(Watched {
            inner: self.ledger.clone(),
            clock: self.clock.clone(),
            mode: Mutex::default(),
            pace: Mutex::default(),
            calls: Mutex::default(),
            tripping: Mutex::default(),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            total: AtomicU64::new(0),
        });
        let loops = Loops::new(self.clock.clone(), Handle::current());
        let settings = RostersSettings::default();
        let rosters = start(store.clone(), ledger.clone(), self.clock.clone(), settings, &loops).unwrap();
        let desk = rosters.roster(&desk()).unwrap();
        Instance {
            store,
            ledger,
            rosters,
            desk,
            _loops: loops,
        }
    }

    /// A process that trusts the mirror.
    pub(super) async fn running(&self) -> Instance {
        let instance = self.start();
        self.until_believed(&instance).await;
        instance
    }

    pub(super) async fn until_believed(&self, instance: &Instance) {
        pass_until(&self.clock, "the mirror is believed", secs(5), || {
            // Without sweeps: another process has just reconciled.
            instance.desk.state.last_reconciled(self.memory_time(), self.now());
            instance.belief() == Belief::Mirror
        })
        .await;
    }

    pub(super) async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    /// A row of the ledger.
    pub(super) async fn row(&self, provider: &str) -> Provider {
        let row = self.ledger.provider(&desk(), &name(provider)).await.unwrap();
        row.expect("the ledger has it")
    }

    /// The settings of the ledger.
    pub(super) async fn settings(&self) -> RosterSettings {
        self.ledger.settings(&desk()).await.unwrap()
    }

    /// The provider in the mirror.
    pub(super) async fn seen(&self, provider: &str) -> Option<tenure_core::roster::MirroredProvider> {
        let looked = self.memory.look(&self.group, &[name(provider)]).await.unwrap();
        looked.providers.into_iter().next().flatten()
    }

    /// The hot store's time.
    pub(super) async fn memory_now(&self) -> StoreTime {
        Store::now(&*self.memory).await.unwrap()
    }

    /// The same without a call.
    fn memory_time(&self) -> StoreTime {
        StoreTime::from_micros(self.clock.wall_micros())
    }

    /// The members of the roster's group.
    pub(super) async fn memory_members(&self) -> Vec<tenure_core::membership::Member> {
        self.memory
            .members(&self.group, &PageRequest::default())
            .await
            .unwrap()
            .items
    }

    pub(super) async fn groups(&self) -> Vec<Group> {
        self.memory.groups().await.unwrap()
    }

    pub(super) fn now(&self) -> tenure_core::clock::Mono {
        self.clock.mono()
    }

    pub(super) async fn dirty(&self) -> usize {
        self.ledger.dirty(&desk(), 1_000).await.unwrap().len()
    }
}

impl Instance {
    pub(super) fn belief(&self) -> Belief {
        self.desk.state.mirror().trust().belief()
    }

    /// Creates a provider.
    pub(super) async fn put(&self, provider: &str) -> Written<Provider> {
        let spec = ProviderSpec::default();
        self.desk.put_provider(&name(provider), &spec).await.unwrap()
    }

    /// Creates a provider and takes it online.
    pub(super) async fn arrive(&self, provider: &str) -> Written<Provider> {
        self.put(provider).await;
        self.go_online(provider).await
    }

    pub(super) async fn go_online(&self, provider: &str) -> Written<Provider> {
        match self.desk.online(&name(provider)).await.unwrap() {
            Online::Done(written) => written,
            Online::Deactivated(row) => panic!("{row:?} is deactivated"),
        }
    }

    pub(super) async fn hear(&self, provider: &str) -> HeartbeatOutcome {
        self.desk.heartbeat(&name(provider), None).await.unwrap()
    }

    /// The available providers and the source.
    pub(super) async fn who(&self) -> (Vec<String>, Source) {
        let Sourced { value, source } = self.desk.available(100).await.unwrap();
        (
            value.iter().map(|candidate| candidate.provider.to_string()).collect(),
            source,
        )
    }
}
