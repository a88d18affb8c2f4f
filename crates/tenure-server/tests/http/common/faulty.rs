//! The reference store in a mood: it hangs, fails, panics, or waits at a gate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::event::{EventId, EventLog, EventPage, EventQuery};
use tenure_core::id::{Group, Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use tenure_core::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore};
use tenure_core::memory::MemoryStore;
use tenure_core::registry::{Claim, ClaimMode, Claimed, RegistryStore};
use tenure_core::store::{Call, Finding, Health, Page, PageRequest, Store, StoreOptions};
use tenure_core::sweep::{Doomed, EndedBatch, GroupStatus, ReleaseRequest, ReleasedBatch, Sweep, SweepSteps};
use tenure_core::target::{Target, TargetSpec, TargetStore};
use tenure_core::time::StoreTime;
use tokio::sync::Semaphore;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// Never answers.
    Hangs,
    /// Answers with an error of this kind.
    Fails(ErrorKind),
    Panics,
    /// Waits for [`Faulty::open`], then does it.
    Waits,
}

pub struct Faulty {
    inner: Arc<MemoryStore>,
    mood: Mutex<Mood>,
    gate: Semaphore,
    /// Counts those that came to the gate.
    at_gate: Semaphore,
}

impl Faulty {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let inner = MemoryStore::new(StoreOptions::default(), clock);
        Arc::new(Self {
            inner,
            mood: Mutex::new(Mood::Good),
            gate: Semaphore::new(0),
            at_gate: Semaphore::new(0),
        })
    }

    pub fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Lets this many waiting calls go on.
    pub fn open(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// Waits until somebody is at the gate.
    pub async fn someone_waits(&self) {
        self.at_gate.acquire().await.expect("an open semaphore").forget();
    }

    async fn act<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let mood = *self.mood.lock().unwrap_or_else(PoisonError::into_inner);
        match mood {
            Mood::Good => call.await,
            Mood::Hangs => std::future::pending().await,
            Mood::Fails(ErrorKind::Unavailable) => Err(Error::unavailable("made to be away", Outcome::Unchanged)),
            Mood::Fails(kind) => Err(Error::new(kind, "made to fail")),
            Mood::Panics => panic!("made to panic"),
            Mood::Waits => {
                self.at_gate.add_permits(1);
                self.gate.acquire().await.expect("an open semaphore").forget();
                call.await
            }
        }
    }
}

#[async_trait]
impl MembershipStore for Faulty {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        self.act(self.inner.join(group, join, call)).await
    }
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        self.act(self.inner.beat(group, beats)).await
    }
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        self.act(self.inner.end(group, tenure, by, call)).await
    }
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        self.act(self.inner.member(group, member)).await
    }
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        self.act(self.inner.members(group, page)).await
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
        self.act(self.inner.claim(group, registry, tenure, keys, mode, call))
            .await
    }
    async fn release_claim(&self, g: &Group, r: &RegistryName, key: &Key, tenure: &TenureId, call: Call) -> Result<()> {
        self.act(self.inner.release_claim(g, r, key, tenure, call)).await
    }
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        self.act(self.inner.claim_of(group, registry, key)).await
    }
    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        self.act(self.inner.claims(group, registry, owner, page)).await
    }
}

#[async_trait]
impl LeaseStore for Faulty {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        self.act(self.inner.acquire(group, tenure, leases, call)).await
    }
    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        self.act(self.inner.release_leases(group, tenure, leases, to, call))
            .await
    }
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        self.act(self.inner.lease_of(group, lease)).await
    }
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        self.act(self.inner.leases(group, holder, page)).await
    }
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        self.act(self.inner.held_leases(group, tenure, page)).await
    }
}

#[async_trait]
impl TargetStore for Faulty {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        self.act(self.inner.put_target(group, target, spec, call)).await
    }
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        self.act(self.inner.remove_target(group, target, call)).await
    }
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        self.act(self.inner.target(group, target)).await
    }
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        self.act(self.inner.targets(group, page)).await
    }
}

#[async_trait]
impl EventLog for Faulty {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        self.act(self.inner.events(group, query)).await
    }
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        self.act(self.inner.wait_for_events(group, after, patience)).await
    }
}

#[async_trait]
impl SweepSteps for Faulty {
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        self.act(self.inner.tick(group)).await
    }
    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        self.act(self.inner.end_lapsed(group, limit, call)).await
    }
    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        self.act(self.inner.release(group, request, call)).await
    }
    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        self.act(self.inner.doomed(group, limit)).await
    }
}

#[async_trait]
impl Sweep for Faulty {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        Some(self)
    }
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        self.act(self.inner.status(group)).await
    }
}

#[async_trait]
impl Store for Faulty {
    fn place(&self) -> String {
        "faulty:".to_owned()
    }
    fn health(&self) -> Health {
        Health::Up
    }
    async fn now(&self) -> Result<StoreTime> {
        self.act(self.inner.now()).await
    }
    async fn groups(&self) -> Result<Vec<Group>> {
        self.act(self.inner.groups()).await
    }
    async fn examine(&self) -> Vec<Finding> {
        self.inner.examine().await
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}
