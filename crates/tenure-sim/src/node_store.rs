//! The store as a node has it: every call is a request over the world's network.
//!
//! It keeps the promise that every store over a network has to keep (see `tenure_core::store::Call`): it anchors the
//! store's time at the last answer and adds a not-after to each mutating call but a beat, so that what it has given up on
//! cannot take effect later.

mod session;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    Claim, ClaimMode, Clock, EndReason, Error, ErrorKind, EventId, EventPage, EventQuery, Group, GroupStatus, Key,
    Member, MemberId, Mono, Outcome, Page, PageRequest, RegistryName, Result, Store, StoreTime, TenureId,
};
use tenure_core::clock::within;
use tenure_core::event::EventLog;
use tenure_core::id::LeaseName;
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use tenure_core::membership::{Beat, Beaten, EndBy, Join, Joined, MembershipStore};
use tenure_core::registry::{Claimed, RegistryStore};
use tenure_core::settling::GapCause;
use tenure_core::store::{Call, Finding, Health};
use tenure_core::sweep::{
    Doomed, EndedBatch, ReapedBatch, ReconcileRequest, Reconciled, ReleaseRequest, ReleasedBatch, SettleReport, Sweep,
    SweepSteps,
};
use tenure_core::target::{Target, TargetSpec, TargetStore};

use crate::network::Network;
use crate::wire::{Op, Reply};

/// After this long a call counts as unanswered.
const GIVE_UP: Duration = Duration::from_millis(1_000);

/// One process's connection to the store.
pub struct NodeStore {
    node: usize,
    network: Network,
    clock: Arc<dyn Clock>,
    anchor: Mutex<Option<(StoreTime, Mono)>>,
    /// Break on purpose: calls carry no not-after at all.
    forget_not_after: bool,
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeStore({})", self.node)
    }
}

/// Takes the one answer that a call can have.
macro_rules! answer {
    ($reply:expr, $wanted:ident) => {
        match $reply {
            Reply::$wanted(answer) => Ok(answer),
            other => Err(mixed_up(&other)),
        }
    };
}

fn mixed_up(reply: &Reply) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("the answer belongs to another call: {reply:?}"),
    )
}

impl NodeStore {
    /// A connection that is made when it is first used.
    #[must_use]
    pub fn new(node: usize, network: Network, clock: Arc<dyn Clock>, forget_not_after: bool) -> Arc<Self> {
        Arc::new(Self {
            node,
            network,
            clock,
            anchor: Mutex::default(),
            forget_not_after,
        })
    }

    async fn call(&self, group: &Group, mut op: Op) -> Result<Reply> {
        if op.call_mut().is_some() && self.anchor().is_none() {
            // A new connection asks for the time before it asks for a change.
            self.exchange(group, Op::Now).await?;
        }
        let anchor = self.anchor();
        if let (Some(call), Some((as_of, at))) = (op.call_mut(), anchor) {
            let ours = as_of + (self.clock.mono() + GIVE_UP).since(at);
            call.not_after = Some(call.not_after.map_or(ours, |theirs| theirs.min(ours)));
            if self.forget_not_after {
                call.not_after = None;
            }
        }
        self.exchange(group, op).await
    }

    async fn exchange(&self, group: &Group, op: Op) -> Result<Reply> {
        let lost = |how: &'static str| Error::unavailable(how, Outcome::Unknown);
        let answer = self.network.send(self.node, group, op)?;
        match within(&*self.clock, GIVE_UP, answer).await {
            Some(Ok((reply, as_of))) => {
                *self.anchor_slot() = Some((as_of, self.clock.mono()));
                reply
            }
            Some(Err(_)) => {
                *self.anchor_slot() = None;
                Err(lost("the connection was reset"))
            }
            None => Err(lost("the store did not answer in time")),
        }
    }

    fn anchor(&self) -> Option<(StoreTime, Mono)> {
        *self.anchor_slot()
    }

    fn anchor_slot(&self) -> std::sync::MutexGuard<'_, Option<(StoreTime, Mono)>> {
        self.anchor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl MembershipStore for NodeStore {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        let join = join.clone();
        answer!(self.call(group, Op::Join { join, call }).await?, Joined)
    }
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        let beats = beats.to_vec();
        answer!(self.call(group, Op::Beat { beats }).await?, Beaten)
    }
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        let tenure = tenure.clone();
        answer!(self.call(group, Op::End { tenure, by, call }).await?, Reason)
    }
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let member = member.clone();
        answer!(self.call(group, Op::Member { member }).await?, Member)
    }
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        let page = page.clone();
        answer!(self.call(group, Op::Members { page }).await?, Members)
    }
}

#[async_trait]
impl RegistryStore for NodeStore {
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        let op = Op::Claim {
            registry: registry.clone(),
            tenure: tenure.clone(),
            keys: keys.to_vec(),
            mode,
            call,
        };
        answer!(self.call(group, op).await?, Claimed)
    }
    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        let op = Op::ReleaseClaim {
            registry: registry.clone(),
            key: key.clone(),
            tenure: tenure.clone(),
            call,
        };
        self.call(group, op).await.map(drop)
    }
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        let op = Op::ClaimOf {
            registry: registry.clone(),
            key: key.clone(),
        };
        answer!(self.call(group, op).await?, Claim)
    }
    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let op = Op::Claims {
            registry: registry.clone(),
            owner: owner.cloned(),
            page: page.clone(),
        };
        answer!(self.call(group, op).await?, Claims)
    }
}

#[async_trait]
impl LeaseStore for NodeStore {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        let op = Op::Acquire {
            tenure: tenure.clone(),
            leases: leases.to_vec(),
            call,
        };
        answer!(self.call(group, op).await?, Acquired)
    }
    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        let op = Op::ReleaseLeases {
            tenure: tenure.clone(),
            leases: leases.to_vec(),
            to: to.cloned(),
            call,
        };
        answer!(self.call(group, op).await?, GivenUp)
    }
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        let lease = lease.clone();
        answer!(self.call(group, Op::LeaseOf { lease }).await?, Lease)
    }
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let (holder, page) = (holder.cloned(), page.clone());
        answer!(self.call(group, Op::Leases { holder, page }).await?, Leases)
    }
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        let (tenure, page) = (tenure.clone(), page.clone());
        answer!(self.call(group, Op::HeldLeases { tenure, page }).await?, HeldLeases)
    }
}

#[async_trait]
impl TargetStore for NodeStore {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let target = target.clone();
        answer!(self.call(group, Op::PutTarget { target, spec, call }).await?, Changed)
    }
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        let target = target.clone();
        answer!(self.call(group, Op::RemoveTarget { target, call }).await?, Changed)
    }
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        let target = target.clone();
        answer!(self.call(group, Op::Target { target }).await?, Target)
    }
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        let page = page.clone();
        answer!(self.call(group, Op::Targets { page }).await?, Targets)
    }
}

#[async_trait]
impl EventLog for NodeStore {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        let query = query.clone();
        answer!(self.call(group, Op::Events { query }).await?, Events)
    }
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        let answer = self.network.send(self.node, group, Op::Wait { after, patience })?;
        // A subscriber that hears nothing looks again; that is not an error.
        match within(&*self.clock, patience, answer).await {
            Some(Err(_)) => Err(Error::unavailable("the connection was reset", Outcome::Unchanged)),
            Some(Ok((Err(error), _))) => Err(error),
            Some(Ok((Ok(_), _))) | None => Ok(()),
        }
    }
}

#[async_trait]
impl SweepSteps for NodeStore {
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        answer!(self.call(group, Op::Tick).await?, Status)
    }
    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        answer!(self.call(group, Op::EndLapsed { limit, call }).await?, Ended)
    }
    /// No daemon of this world refuses a beat.
    async fn spare(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        self.end_lapsed(group, limit, call).await
    }
    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        let request = request.clone();
        answer!(self.call(group, Op::Release { request, call }).await?, Released)
    }
    async fn reap(&self, _: &Group, _: &ReleaseRequest, _: Call) -> Result<ReapedBatch> {
        Ok(ReapedBatch::default())
    }

    async fn reconcile(&self, _: &Group, _: &ReconcileRequest, _: Call) -> Result<Reconciled> {
        Ok(Reconciled::default())
    }

    async fn forget_group(&self, _: &Group, _: Call) -> Result<bool> {
        Ok(false)
    }

    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        answer!(self.call(group, Op::Doomed { limit }).await?, Doomed)
    }
}

#[async_trait]
impl Sweep for NodeStore {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        Some(self)
    }
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        answer!(self.call(group, Op::Status).await?, Status)
    }
    async fn settle(&self, _: Option<&Group>, _: Option<GapCause>, _: Call) -> Result<SettleReport> {
        Err(Error::new(ErrorKind::Unsupported, "the simulation settles nothing"))
    }
}

#[async_trait]
impl Store for NodeStore {
    fn place(&self) -> String {
        format!("sim:{}", self.node)
    }
    fn health(&self) -> Health {
        Health::Up
    }
    async fn now(&self) -> Result<StoreTime> {
        answer!(self.call(&self.network.group(), Op::Now).await?, Now)
    }
    async fn groups(&self) -> Result<Vec<Group>> {
        answer!(self.call(&self.network.group(), Op::Groups).await?, Groups)
    }
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }
    async fn close(&self) {}
}
