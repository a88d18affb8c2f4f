//! Nodes over one in-memory store, each with its own fault injection, and a record of the workers per target. A second
//! worker on a target, or a worker with an older token, aborts the test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, ManualClock, Mono};
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName, RegistryName};
use tenure_core::lease::Lease;
use tenure_core::membership::Labels;
use tenure_core::memory::MemoryStore;
use tenure_core::settling::GapCause;
use tenure_core::store::{Call, PageRequest, Store, StoreOptions};
use tenure_core::target::TargetSpec;
use tenure_core::verdict::Verdict;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::super::{Assignment, Fleet, FleetSettings, LiveSessions, TargetList, TargetSource};
use crate::client::{ClientSettings, Tenure};
use crate::group::GroupHandle;
use crate::loops::Loops;
use crate::membership::{JoinOptions, Membership};
use crate::nodes::DRAINING;
use crate::testing::{Fault, Faulty, START, Verb, pass, secs, served, settle};

pub(super) const TTL: Duration = secs(12);
/// The group with the sessions; it has no fleet nodes.
const CHAT: &str = "chat";
/// The length of a work cycle.
const CYCLE: Duration = Duration::from_millis(500);

/// How a task behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    Works,
    /// Keeps a clone of its assignment until it is released, ignoring stop requests.
    Stubborn,
    Returns,
    Panics,
    /// Works without checking the assignment.
    Heedless,
}

/// The workers of all targets.
#[derive(Default)]
struct Record {
    /// The workers of a target by node, with their tokens.
    workers: BTreeMap<LeaseName, BTreeMap<String, u64>>,
    last_worker: BTreeMap<LeaseName, String>,
    last_token: BTreeMap<LeaseName, u64>,
    cycles: BTreeMap<String, u64>,
    starts: BTreeMap<LeaseName, u64>,
    moves: usize,
    members: BTreeMap<String, Arc<Membership>>,
    behaviours: BTreeMap<LeaseName, Behaviour>,
}

struct Member {
    store: Arc<Faulty>,
    membership: Arc<Membership>,
    fleet: Option<Arc<Fleet>>,
}

pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    /// Its janitor keeps the store ticking.
    other: Tenure,
    group: Group,
    members: BTreeMap<String, Member>,
    record: Arc<Mutex<Record>>,
    stubborn: Arc<Notify>,
    pub(super) list: TargetList,
    broken: Arc<Mutex<bool>>,
    pub(super) settings: FleetSettings,
    pub(super) stored_targets: bool,
    /// Makes live sessions the targets; this field pauses them.
    pub(super) live_sessions: Option<&'static str>,
    /// Another process, which takes beats.
    _beats: Loops,
}

/// A target list that can be made to panic.
struct Source {
    list: TargetList,
    broken: Arc<Mutex<bool>>,
}

#[async_trait]
impl TargetSource for Source {
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>> {
        let broken = *self.broken.lock().unwrap();
        assert!(!broken, "injected");
        self.list.targets().await
    }
    fn changes(&self) -> Option<watch::Receiver<()>> {
        self.list.changes()
    }
}

/// Exists while a task works on a target.
struct Working {
    record: Arc<Mutex<Record>>,
    node: String,
    target: LeaseName,
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut record = lock(&self.record);
        if let Some(workers) = record.workers.get_mut(&self.target) {
            workers.remove(&self.node);
        }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let own = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Labels::new(own.collect()).unwrap()
}

impl World {
    /// A fixture with `targets` targets, `t-00000` and so on, without nodes.
    pub(super) fn new(targets: usize) -> Self {
        let clock = Arc::new(ManualClock::new(START, 1));
        let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
        let other = Tenure::on_store(
            Arc::clone(&memory),
            clock.clone(),
            Handle::current(),
            &ClientSettings::default(),
        );
        let beats = served(&memory, &clock);
        Self {
            clock,
            memory,
            _beats: beats,
            other: other.unwrap(),
            group: Group::new("g").unwrap(),
            members: BTreeMap::new(),
            record: Arc::default(),
            stubborn: Arc::default(),
            list: TargetList::new((0..targets).map(|n| format!("t-{n:05}"))).unwrap(),
            broken: Arc::default(),
            settings: FleetSettings::default(),
            stored_targets: false,
            live_sessions: None,
        }
    }

    pub(super) async fn join(&mut self, name: &str) {
        self.join_labelled(name, &[]).await;
    }

    pub(super) async fn join_labelled(&mut self, name: &str, labels: &[(&str, &str)]) {
        let membership = self.member(name, labels).await;
        let mut builder = Fleet::builder(&membership).settings(self.settings.clone());
        if let Some(field) = self.live_sessions {
            let chat = GroupHandle::new(membership.shared().context.clone(), Group::new(CHAT).unwrap());
            builder = builder.targets(LiveSessions::of(&chat).paused_field(field));
        } else if !self.stored_targets {
            builder = builder.targets(Source {
                list: self.list.clone(),
                broken: Arc::clone(&self.broken),
            });
        }
        let (record, node, stubborn) = (Arc::clone(&self.record), name.to_owned(), Arc::clone(&self.stubborn));
        let clock = Arc::clone(&self.clock);
        let fleet = builder
            .start(move |target| {
                let (record, stubborn, clock) = (Arc::clone(&record), Arc::clone(&stubborn), Arc::clone(&clock));
                work(record, node.clone(), stubborn, clock, target)
            })
            .unwrap();
        self.members.get_mut(name).unwrap().fleet = Some(Arc::new(fleet));
        settle().await;
    }

    pub(super) async fn join_without_fleet(&mut self, name: &str) -> Arc<Membership> {
        self.member(name, &[]).await
    }

    async fn member(&mut self, name: &str, labels: &[(&str, &str)]) -> Arc<Membership> {
        let store = Faulty::new(Arc::clone(&self.memory), self.clock.clone());
        let settings = ClientSettings {
            sweeper: None,
            ..ClientSettings::default()
        };
        let tenure = Tenure::on_store(store.clone(), self.clock.clone(), Handle::current(), &settings).unwrap();
        let options = JoinOptions {
            ttl: TTL,
            labels: self::labels(labels),
            ..JoinOptions::named(name).unwrap()
        };
        let membership = Arc::new(tenure.group("g").unwrap().join(options).await.unwrap());
        let known = Arc::clone(&membership);
        lock(&self.record).members.insert(name.to_owned(), known);
        let member = Member {
            store,
            membership: Arc::clone(&membership),
            fleet: None,
        };
        self.members.insert(name.to_owned(), member);
        membership
    }

    pub(super) fn member_of(&self, name: &str) -> Arc<Membership> {
        Arc::clone(&self.members[name].membership)
    }

    pub(super) fn fleet(&self, name: &str) -> Arc<Fleet> {
        Arc::clone(self.members[name].fleet.as_ref().unwrap())
    }

    pub(super) fn drop_fleet(&mut self, name: &str) {
        self.members.get_mut(name).unwrap().fleet = None;
    }

    /// Cuts a node off the store, or reconnects it.
    pub(super) fn cut(&self, name: &str, cut: bool) {
        let store = &self.members[name].store;
        store.cut(cut);
        for verb in [Verb::Acquire, Verb::ReleaseLeases, Verb::Targets] {
            store.always(verb, cut.then_some(Fault::Hang { applied: false }));
        }
    }

    pub(super) fn fault(&self, name: &str, verb: Verb, fault: Option<Fault>) {
        self.members[name].store.always(verb, fault);
    }

    /// Releases one gated call of a node.
    pub(super) fn open(&self, name: &str) {
        self.members[name].store.open();
    }

    pub(super) fn calls(&self, name: &str, verb: Verb) -> u64 {
        self.members[name].store.calls(verb)
    }

    pub(super) fn behaviour(&self, target: &str, behaviour: Behaviour) {
        let target = LeaseName::new(target).unwrap();
        lock(&self.record).behaviours.insert(target, behaviour);
    }

    pub(super) fn release_stubborn(&self) {
        self.stubborn.notify_waiters();
    }

    pub(super) fn break_source(&self, broken: bool) {
        *self.broken.lock().unwrap() = broken;
    }

    pub(super) fn now(&self) -> Mono {
        self.clock.mono()
    }

    pub(super) fn verdict(&self, name: &str) -> Verdict {
        self.members[name].membership.verdict()
    }

    /// The targets that a node works on.
    pub(super) fn worked_on(&self, name: &str) -> BTreeSet<LeaseName> {
        let record = lock(&self.record);
        let mine = record.workers.iter().filter(|(_, workers)| workers.contains_key(name));
        mine.map(|(target, _)| target.clone()).collect()
    }

    /// The number of targets that these nodes work on together.
    pub(super) fn worked_on_by(&self, names: &[&str]) -> usize {
        names.iter().map(|name| self.worked_on(name).len()).sum()
    }

    /// The nodes that work on a target.
    pub(super) fn workers(&self, target: impl AsRef<str>) -> Vec<String> {
        let record = lock(&self.record);
        let workers = record.workers.get(&LeaseName::new(target).unwrap());
        workers.into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let with_fleet = self.members.iter().filter(|(_, member)| member.fleet.is_some());
        with_fleet
            .map(|(name, _)| (name.clone(), self.worked_on(name).len()))
            .collect()
    }

    pub(super) fn held_in_all(&self) -> usize {
        let record = lock(&self.record);
        record.workers.values().filter(|workers| !workers.is_empty()).count()
    }

    pub(super) fn cycles(&self, name: &str) -> u64 {
        lock(&self.record).cycles.get(name).copied().unwrap_or(0)
    }

    pub(super) fn starts(&self, target: &str) -> u64 {
        let target = LeaseName::new(target).unwrap();
        lock(&self.record).starts.get(&target).copied().unwrap_or(0)
    }

    /// How often targets changed their worker, the first one included.
    pub(super) fn moves(&self) -> usize {
        lock(&self.record).moves
    }

    pub(super) async fn put_target(&self, target: &str, spec: TargetSpec) {
        let target = LeaseName::new(target).unwrap();
        let put = self.memory.put_target(&self.group, &target, spec, Call::default());
        put.await.unwrap();
        settle().await;
    }

    /// Joins a front-end to the group of the sessions.
    pub(super) async fn front(&self) -> Membership {
        let chat = self.other.group(CHAT).unwrap();
        let joined = self.run(chat.join(JoinOptions::named("front").unwrap()));
        joined.await.unwrap()
    }

    /// Runs a future while virtual time passes.
    pub(super) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            () = self.pass(secs(30)) => panic!("not done after 30 s"),
        }
    }

    pub(super) async fn lease(&self, target: &str) -> Option<Lease> {
        let target = LeaseName::new(target).unwrap();
        self.memory.lease_of(&self.group, &target).await.unwrap()
    }

    /// The nodes with a draining mark.
    pub(super) async fn marked(&self) -> Vec<String> {
        let registry = RegistryName::new(DRAINING).unwrap();
        let page = PageRequest::new(None, 1_000).unwrap();
        let claims = self.memory.claims(&self.group, &registry, None, &page).await.unwrap();
        let alive = claims.items.into_iter().filter(|claim| claim.alive);
        alive.map(|claim| claim.key.to_string()).collect()
    }

    /// How often tasks were started.
    pub(super) fn starts_in_all(&self) -> u64 {
        lock(&self.record).starts.values().sum()
    }

    /// Checks that the leases in the store match the workers and their tokens.
    pub(super) async fn check_store(&self) {
        let page = PageRequest::new(None, 1_000).unwrap();
        let leases = self.memory.leases(&self.group, None, &page).await.unwrap().items;
        let held: BTreeMap<LeaseName, (String, u64)> = leases
            .into_iter()
            .filter(|lease| lease.alive)
            .map(|lease| (lease.lease, (lease.holder.to_string(), lease.token.get())))
            .collect();
        let record = lock(&self.record);
        let working = record.workers.iter().flat_map(|(target, workers)| {
            workers
                .iter()
                .map(|(node, token)| (target.clone(), (node.clone(), *token)))
        });
        assert_eq!(working.collect::<BTreeMap<_, _>>(), held);
    }

    pub(super) async fn settle(&self) {
        settle().await;
    }

    /// An operator says that no lease was held.
    pub(super) async fn settle_group(&self) {
        let cause = Some(GapCause::Silent);
        let settled = self.memory.settle(Some(&self.group), cause, Call::default()).await;
        assert_eq!(settled.unwrap().settled, 1);
    }

    pub(super) async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    pub(super) async fn until_all_held(&self, limit: Duration) {
        let targets = self.list.targets().await.unwrap();
        let wanted = targets.values().filter(|spec| !spec.paused).count();
        self.until("every target has a worker", limit, |world| {
            world.held_in_all() == wanted
        })
        .await;
    }

    pub(super) async fn until(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) {
        let end = self.clock.mono() + limit;
        settle().await;
        while !condition(self) {
            let left = end.since(self.clock.mono());
            assert!(
                !left.is_zero(),
                "waited {limit:?} of virtual time in vain until {what}: {:?}",
                self.counts()
            );
            let step = self
                .clock
                .next_wake()
                .unwrap_or(left)
                .clamp(Duration::from_micros(1), left);
            self.clock.advance(step);
            settle().await;
        }
    }
}

/// The task of every node.
async fn work(
    record: Arc<Mutex<Record>>,
    node: String,
    stubborn: Arc<Notify>,
    clock: Arc<ManualClock>,
    target: Assignment,
) {
    let lease = target.target().clone();
    let behaviour = {
        let mut record = lock(&record);
        *record.starts.entry(lease.clone()).or_default() += 1;
        record.behaviours.get(&lease).copied().unwrap_or(Behaviour::Works)
    };
    match behaviour {
        Behaviour::Returns => return,
        Behaviour::Panics => panic!("injected"),
        Behaviour::Works | Behaviour::Stubborn | Behaviour::Heedless => {}
    }
    enter(&record, &node, &target);
    let working = Working {
        record: Arc::clone(&record),
        node: node.clone(),
        target: lease,
    };
    if behaviour == Behaviour::Stubborn {
        // Outlives the drop of this task.
        let kept = target.clone();
        tokio::spawn(async move {
            let (_kept, _working) = (kept, working);
            stubborn.notified().await;
        });
        std::future::pending::<()>().await;
        return;
    }
    let _working = working;
    while behaviour == Behaviour::Heedless || target.next_cycle().await {
        assert!(behaviour == Behaviour::Heedless || target.verdict() == Verdict::Held);
        *lock(&record).cycles.entry(node.clone()).or_default() += 1;
        if behaviour == Behaviour::Heedless {
            clock.sleep(CYCLE).await;
        } else {
            target.rest(CYCLE).await;
        }
    }
}

/// Records a worker. No other worker may hold the lease (one with an uncertain verdict is suspended), and no earlier
/// worker may have had a higher token.
fn enter(record: &Mutex<Record>, node: &str, target: &Assignment) {
    let (lease, token) = (target.target().clone(), target.token().get());
    let mut record = lock(record);
    let workers = record.workers.entry(lease.clone()).or_default();
    workers.insert(node.to_owned(), token);
    let others: Vec<String> = workers.keys().filter(|other| *other != node).cloned().collect();
    let alone = others
        .iter()
        .all(|other| record.members[other].verdict() != Verdict::Held);
    let before = record.last_token.insert(lease.clone(), token).unwrap_or(0);
    if record.last_worker.insert(lease.clone(), node.to_owned()).as_deref() != Some(node) {
        record.moves += 1;
    }
    // A panic would be caught and the task restarted, so abort the process.
    if !alone || before > token {
        eprintln!("{node} works on {lease} under {token} beside {others:?}; the token before was {before}");
        std::process::abort();
    }
}
