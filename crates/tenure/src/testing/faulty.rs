//! A store around another that loses replies, fails, and stalls, verb by verb.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::event::{EventId, EventLog, EventPage, EventQuery};
use tenure_core::id::{Group, Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use tenure_core::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore};
use tenure_core::registry::{Claim, ClaimMode, Claimed, RegistryStore};
use tenure_core::store::{Call, Finding, Health, Page, PageRequest, Store};
use tenure_core::sweep::{Doomed, EndedBatch, GroupStatus, ReleaseRequest, ReleasedBatch, Sweep, SweepSteps};
use tenure_core::target::{Target, TargetSpec, TargetStore};
use tenure_core::{Clock, StoreTime};
use tokio::sync::Notify;

/// What a store does, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Join,
    Beat,
    End,
    Look,
    Claim,
    ReleaseClaim,
    Acquire,
    ReleaseLeases,
    Targets,
    Events,
    Tick,
    EndLapsed,
    Release,
    Now,
    Groups,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails before it does anything, with this kind.
    Fail(ErrorKind),
    /// It is applied, but its reply is lost.
    LoseReply,
    /// It is not applied, and nobody can tell.
    LoseRequest,
    /// It never answers; applied or not.
    Hang {
        /// Whether it was applied first.
        applied: bool,
    },
    /// It waits before it is applied.
    Delay(Duration),
    /// It waits for [`Faulty::open`] before it is applied.
    Gate,
    /// It panics.
    Panic,
}

/// The store.
pub(crate) struct Faulty {
    inner: Mutex<Arc<dyn Store>>,
    clock: Arc<dyn Clock>,
    plan: Mutex<Plan>,
    gate: Notify,
    /// What is written goes here as well.
    replica: Mutex<Option<Arc<dyn Store>>>,
}

#[derive(Default)]
struct Plan {
    /// The faults of the next calls of a verb, in order.
    next: BTreeMap<Verb, Vec<Fault>>,
    /// The fault of every call of a verb, once `next` is used up.
    always: BTreeMap<Verb, Fault>,
    /// The fault of some calls of a verb, in percent of them.
    sometimes: BTreeMap<Verb, (u64, Fault)>,
    /// The next call of a verb is given up at once, and arrives this much later.
    late: BTreeMap<Verb, Duration>,
    calls: BTreeMap<Verb, u64>,
    beats: Vec<usize>,
    broken_group: Option<Group>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(inner),
            clock,
            plan: Mutex::default(),
            gate: Notify::new(),
            replica: Mutex::default(),
        })
    }

    /// The next call of this verb goes wrong; calls add up.
    pub(crate) fn next(&self, verb: Verb, fault: Fault) {
        self.plan().next.entry(verb).or_default().push(fault);
    }

    /// Every call of this verb goes wrong from now on; `None` heals it.
    pub(crate) fn always(&self, verb: Verb, fault: Option<Fault>) {
        match fault {
            Some(fault) => drop(self.plan().always.insert(verb, fault)),
            None => drop(self.plan().always.remove(&verb)),
        }
    }

    /// So many percent of the calls of this verb go wrong from now on.
    pub(crate) fn sometimes(&self, verb: Verb, percent: u64, fault: Fault) {
        self.plan().sometimes.insert(verb, (percent, fault));
    }

    /// No call goes wrong any more.
    pub(crate) fn heal(&self) {
        let mut plan = self.plan();
        plan.next.clear();
        plan.always.clear();
        plan.sometimes.clear();
    }

    /// The next call of this verb is given up at once, and arrives this much later.
    pub(crate) fn late(&self, verb: Verb, late: Duration) {
        self.plan().late.insert(verb, late);
    }

    /// What is written from now on is written there as well, until `None`.
    pub(crate) fn replicate(&self, replica: Option<Arc<dyn Store>>) {
        *self.replica.lock().unwrap_or_else(PoisonError::into_inner) = replica;
    }

    /// Everything is out of reach, or in reach again.
    pub(crate) fn cut(&self, cut: bool) {
        use Verb::*;
        for verb in [
            Join,
            Beat,
            End,
            Look,
            Claim,
            ReleaseClaim,
            Acquire,
            ReleaseLeases,
            Targets,
            Events,
            Tick,
            EndLapsed,
            Release,
            Now,
            Groups,
        ] {
            self.always(verb, cut.then_some(Fault::Hang { applied: false }));
        }
    }

    /// Sweep steps of one group fail.
    pub(crate) fn break_group(&self, group: Option<Group>) {
        self.plan().broken_group = group;
    }

    /// Lets one gated call go on.
    pub(crate) fn open(&self) {
        self.gate.notify_one();
    }

    pub(crate) fn calls(&self, verb: Verb) -> u64 {
        self.plan().calls.get(&verb).copied().unwrap_or(0)
    }

    /// The sizes of the beat batches so far.
    pub(crate) fn beat_batches(&self) -> Vec<usize> {
        self.plan().beats.clone()
    }

    /// Another store takes the place of the one inside: its data is gone.
    pub(crate) fn swap(&self, inner: Arc<dyn Store>) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = inner;
    }

    fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn twin(&self) -> Option<Arc<dyn Store>> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_late(&self, verb: Verb) -> Option<tenure_core::clock::Sleep> {
        let late = self.plan().late.remove(&verb)?;
        *self.plan().calls.entry(verb).or_default() += 1;
        Some(self.clock.sleep(late))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, verb: Verb) -> Option<Fault> {
        let mut plan = self.plan();
        *plan.calls.entry(verb).or_default() += 1;
        let next = plan
            .next
            .get_mut(&verb)
            .filter(|faults| !faults.is_empty())
            .map(|faults| faults.remove(0));
        let sometimes = plan.sometimes.get(&verb);
        let sometimes = sometimes.filter(|(percent, _)| self.clock.entropy() % 100 < *percent);
        let sometimes = sometimes.map(|(_, fault)| fault.clone());
        next.or_else(|| plan.always.get(&verb).cloned()).or(sometimes)
    }

    /// Runs a call that writes.
    async fn write<T: Send>(
        &self,
        verb: Verb,
        call: impl Future<Output = Result<T>> + Send,
        copy: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let both = async {
            let done = call.await;
            copy.await.ok();
            done
        };
        self.run(verb, both).await
    }

    async fn run<T>(&self, verb: Verb, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.take(verb) {
            None => call.await,
            Some(Fault::Fail(kind)) => Err(Error::new(kind, "made to fail")),
            Some(Fault::LoseReply) => {
                call.await?;
                Err(lost())
            }
            Some(Fault::LoseRequest) => Err(lost()),
            Some(Fault::Hang { applied }) => {
                if applied {
                    call.await?;
                }
                std::future::pending().await
            }
            Some(Fault::Delay(wait)) => {
                self.clock.sleep(wait).await;
                call.await
            }
            Some(Fault::Gate) => {
                self.gate.notified().await;
                call.await
            }
            Some(Fault::Panic) => panic!("made to panic"),
        }
    }

    fn steps_of(&self, group: &Group) -> Result<Inside> {
        if self.plan().broken_group.as_ref() == Some(group) {
            return Err(Error::new(ErrorKind::Internal, "this group is broken"));
        }
        Ok(Inside(self.inner()))
    }
}

fn lost() -> Error {
    Error::unavailable("the reply was lost", Outcome::Unknown)
}

/// A call of the store inside, and the same of its replica, if there is one.
macro_rules! write {
    ($self:ident, $verb:expr, |$store:ident| $call:expr) => {{
        let (inner, twin) = ($self.inner(), $self.twin());
        let $store = &inner;
        let call = $call;
        let copy = async {
            match &twin {
                Some($store) => $call.await,
                None => Err(lost()),
            }
        };
        $self.write($verb, call, copy).await
    }};
}

/// The store inside, which certainly has steps.
struct Inside(Arc<dyn Store>);

impl Inside {
    fn steps(&self) -> &dyn SweepSteps {
        self.0.steps().expect("the store inside is one that is swept")
    }
}

#[async_trait]
impl MembershipStore for Faulty {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        write!(self, Verb::Join, |store| store.join(group, join, call))
    }
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        self.plan().beats.push(beats.len());
        write!(self, Verb::Beat, |store| store.beat(group, beats))
    }
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        write!(self, Verb::End, |store| store.end(group, tenure, by, call))
    }
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.member(group, member)).await
    }
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.members(group, page)).await
    }
}

#[async_trait]
impl RegistryStore for Faulty {
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        write!(self, Verb::Claim, |store| store
            .claim(group, registry, tenure, keys, mode, call))
    }
    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        write!(self, Verb::ReleaseClaim, |store| store
            .release_claim(group, registry, key, tenure, call))
    }
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.claim_of(group, registry, key)).await
    }
    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.claims(group, registry, owner, page)).await
    }
}

#[async_trait]
impl LeaseStore for Faulty {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        if let Some(sleep) = self.is_late(Verb::Acquire) {
            let (inner, group, tenure, leases) = (self.inner(), group.clone(), tenure.clone(), leases.to_vec());
            tokio::spawn(async move {
                sleep.await;
                drop(inner.acquire(&group, &tenure, &leases, call).await);
            });
            return Err(lost());
        }
        write!(self, Verb::Acquire, |store| store.acquire(group, tenure, leases, call))
    }
    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        if let Some(sleep) = self.is_late(Verb::ReleaseLeases) {
            let (inner, group, tenure) = (self.inner(), group.clone(), tenure.clone());
            let (leases, to) = (leases.to_vec(), to.cloned());
            tokio::spawn(async move {
                sleep.await;
                drop(inner.release_leases(&group, &tenure, &leases, to.as_ref(), call).await);
            });
            return Err(lost());
        }
        write!(self, Verb::ReleaseLeases, |store| store
            .release_leases(group, tenure, leases, to, call))
    }
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.lease_of(group, lease)).await
    }
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.leases(group, holder, page)).await
    }
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        let inner = self.inner();
        self.run(Verb::Look, inner.held_leases(group, tenure, page)).await
    }
}

#[async_trait]
impl TargetStore for Faulty {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let inner = self.inner();
        self.run(Verb::Targets, inner.put_target(group, target, spec, call))
            .await
    }
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        let inner = self.inner();
        self.run(Verb::Targets, inner.remove_target(group, target, call)).await
    }
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.target(group, target)).await
    }
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        let inner = self.inner();
        self.run(Verb::Look, inner.targets(group, page)).await
    }
}

#[async_trait]
impl EventLog for Faulty {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        let inner = self.inner();
        self.run(Verb::Events, inner.events(group, query)).await
    }
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        self.inner().wait_for_events(group, after, patience).await
    }
}

#[async_trait]
impl SweepSteps for Faulty {
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        let (steps, twin) = (self.steps_of(group)?, self.twin());
        let copy = async {
            match twin.as_ref().and_then(|twin| twin.steps()) {
                Some(steps) => steps.tick(group).await,
                None => Err(lost()),
            }
        };
        self.write(Verb::Tick, steps.steps().tick(group), copy).await
    }
    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        let steps = self.steps_of(group)?;
        self.run(Verb::EndLapsed, steps.steps().end_lapsed(group, limit, call))
            .await
    }
    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        let steps = self.steps_of(group)?;
        if let Some(sleep) = self.is_late(Verb::Release) {
            let (group, request) = (group.clone(), request.clone());
            tokio::spawn(async move {
                sleep.await;
                drop(steps.steps().release(&group, &request, call).await);
            });
            return Err(lost());
        }
        self.run(Verb::Release, steps.steps().release(group, request, call))
            .await
    }
    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        self.steps_of(group)?.steps().doomed(group, limit).await
    }
}

#[async_trait]
impl Sweep for Faulty {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        Some(self)
    }
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        self.inner().status(group).await
    }
}

#[async_trait]
impl Store for Faulty {
    fn place(&self) -> String {
        "faulty:".to_owned()
    }
    fn health(&self) -> Health {
        self.inner().health()
    }
    async fn now(&self) -> Result<StoreTime> {
        let inner = self.inner();
        self.run(Verb::Now, inner.now()).await
    }
    async fn groups(&self) -> Result<Vec<Group>> {
        let inner = self.inner();
        self.run(Verb::Groups, inner.groups()).await
    }
    async fn examine(&self) -> Vec<Finding> {
        self.inner().examine().await
    }
    async fn close(&self) {
        self.inner().close().await;
    }
}
