//! A store whose every call runs on the heart.
//!
//! A connection belongs to the runtime that first used it: when that is the user's and the user blocks it, every call
//! over the same connection stalls, beats included. So user calls travel through the heart as well.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::StoreTime;
use tenure_core::error::Result;
use tenure_core::event::{EventId, EventLog, EventPage, EventQuery};
use tenure_core::id::{Group, Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use tenure_core::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore};
use tenure_core::registry::{Claim, ClaimMode, Claimed, RegistryStore};
use tenure_core::store::{Call, Finding, Health, Page, PageRequest, Store};
use tenure_core::sweep::{GroupStatus, Sweep, SweepReport, SweepRequest, SweepSteps};
use tenure_core::target::{Target, TargetSpec, TargetStore};
use tokio::runtime::Handle;

use crate::heart::run_on;

/// The store.
pub(crate) struct OnHeart {
    store: Arc<dyn Store>,
    runtime: Handle,
}

impl OnHeart {
    pub(crate) fn new(store: Arc<dyn Store>, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { store, runtime })
    }
}

impl fmt::Debug for OnHeart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnHeart({})", self.store.place())
    }
}

/// Runs one call over there: the arguments are cloned, since the call may outlive its caller's borrow.
macro_rules! over_there {
    ($self:ident, |$store:ident| $call:expr, $($argument:ident),*) => {{
        let $store = Arc::clone(&$self.store);
        $(let $argument = $argument.clone();)*
        run_on(&$self.runtime, async move { $call.await }).await?
    }};
}

#[async_trait]
impl MembershipStore for OnHeart {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        over_there!(self, |store| store.join(&group, &join, call), group, join)
    }
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        let beats = beats.to_vec();
        over_there!(self, |store| store.beat(&group, &beats), group)
    }
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        over_there!(self, |store| store.end(&group, &tenure, by, call), group, tenure)
    }
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        over_there!(self, |store| store.member(&group, &member), group, member)
    }
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        over_there!(self, |store| store.members(&group, &page), group, page)
    }
}

#[async_trait]
impl RegistryStore for OnHeart {
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        let keys = keys.to_vec();
        over_there!(
            self,
            |store| store.claim(&group, &registry, &tenure, &keys, mode, call),
            group,
            registry,
            tenure
        )
    }
    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        over_there!(
            self,
            |store| store.release_claim(&group, &registry, &key, &tenure, call),
            group,
            registry,
            key,
            tenure
        )
    }
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        over_there!(
            self,
            |store| store.claim_of(&group, &registry, &key),
            group,
            registry,
            key
        )
    }
    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let owner = owner.cloned();
        over_there!(
            self,
            |store| store.claims(&group, &registry, owner.as_ref(), &page),
            group,
            registry,
            page
        )
    }
}

#[async_trait]
impl LeaseStore for OnHeart {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        let leases = leases.to_vec();
        over_there!(
            self,
            |store| store.acquire(&group, &tenure, &leases, call),
            group,
            tenure
        )
    }
    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        let (leases, to) = (leases.to_vec(), to.cloned());
        over_there!(
            self,
            |store| store.release_leases(&group, &tenure, &leases, to.as_ref(), call),
            group,
            tenure
        )
    }
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        over_there!(self, |store| store.lease_of(&group, &lease), group, lease)
    }
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let holder = holder.cloned();
        over_there!(self, |store| store.leases(&group, holder.as_ref(), &page), group, page)
    }
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        over_there!(
            self,
            |store| store.held_leases(&group, &tenure, &page),
            group,
            tenure,
            page
        )
    }
}

#[async_trait]
impl TargetStore for OnHeart {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        over_there!(
            self,
            |store| store.put_target(&group, &target, spec, call),
            group,
            target
        )
    }
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        over_there!(self, |store| store.remove_target(&group, &target, call), group, target)
    }
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        over_there!(self, |store| store.target(&group, &target), group, target)
    }
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        over_there!(self, |store| store.targets(&group, &page), group, page)
    }
}

#[async_trait]
impl EventLog for OnHeart {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        over_there!(self, |store| store.events(&group, &query), group, query)
    }
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        over_there!(self, |store| store.wait_for_events(&group, after, patience), group)
    }
}

#[async_trait]
impl Sweep for OnHeart {
    /// Whoever sweeps does so on the heart itself, with the store inside.
    fn steps(&self) -> Option<&dyn SweepSteps> {
        self.store.steps()
    }
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        over_there!(self, |store| store.status(&group), group)
    }
    async fn sweep(&self, group: &Group, request: &SweepRequest, pass: &str, call: Call) -> Result<SweepReport> {
        let pass = pass.to_owned();
        over_there!(self, |store| store.sweep(&group, &request, &pass, call), group, request)
    }
}

#[async_trait]
impl Store for OnHeart {
    fn place(&self) -> String {
        self.store.place()
    }
    fn health(&self) -> Health {
        self.store.health()
    }
    async fn now(&self) -> Result<StoreTime> {
        over_there!(self, |store| store.now(),)
    }
    async fn groups(&self) -> Result<Vec<Group>> {
        over_there!(self, |store| store.groups(),)
    }
    async fn examine(&self) -> Vec<Finding> {
        let store = Arc::clone(&self.store);
        run_on(&self.runtime, async move { store.examine().await })
            .await
            .unwrap_or_default()
    }
    async fn close(&self) {
        let store = Arc::clone(&self.store);
        // It fails only when the heart has stopped, and then there is nothing left to close.
        drop(run_on(&self.runtime, async move { store.close().await }).await);
    }
}
