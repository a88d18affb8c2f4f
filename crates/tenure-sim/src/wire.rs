//! What travels between a node and the store: one request, one answer.

use std::time::Duration;

use tenure::{
    Claim, ClaimMode, EndReason, EventId, EventPage, EventQuery, Group, GroupStatus, Key, Member, MemberId, Page,
    PageRequest, RegistryName, Result, StoreTime, TenureId,
};
use tenure_core::id::LeaseName;
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, Token};
use tenure_core::membership::{Beat, Beaten, EndBy, Join, Joined};
use tenure_core::registry::Claimed;
use tenure_core::store::Call;
use tenure_core::sweep::{Doomed, EndedBatch, ReleaseRequest, ReleasedBatch};
use tenure_core::target::{Target, TargetSpec};
use tokio::sync::oneshot;

use crate::time::At;

/// A call of the store, owned, so that it can take effect long after its caller has gone.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is the method of the store trait of that name")]
pub enum Op {
    Join {
        join: Join,
        call: Call,
    },
    Beat {
        beats: Vec<Beat>,
    },
    End {
        tenure: TenureId,
        by: EndBy,
        call: Call,
    },
    Member {
        member: MemberId,
    },
    Members {
        page: PageRequest,
    },
    Claim {
        registry: RegistryName,
        tenure: TenureId,
        keys: Vec<Key>,
        mode: ClaimMode,
        call: Call,
    },
    ReleaseClaim {
        registry: RegistryName,
        key: Key,
        tenure: TenureId,
        call: Call,
    },
    ClaimOf {
        registry: RegistryName,
        key: Key,
    },
    Claims {
        registry: RegistryName,
        owner: Option<MemberId>,
        page: PageRequest,
    },
    Acquire {
        tenure: TenureId,
        leases: Vec<LeaseName>,
        call: Call,
    },
    ReleaseLeases {
        tenure: TenureId,
        leases: Vec<(LeaseName, Token)>,
        to: Option<MemberId>,
        call: Call,
    },
    LeaseOf {
        lease: LeaseName,
    },
    Leases {
        holder: Option<MemberId>,
        page: PageRequest,
    },
    HeldLeases {
        tenure: TenureId,
        page: PageRequest,
    },
    PutTarget {
        target: LeaseName,
        spec: TargetSpec,
        call: Call,
    },
    RemoveTarget {
        target: LeaseName,
        call: Call,
    },
    Target {
        target: LeaseName,
    },
    Targets {
        page: PageRequest,
    },
    Events {
        query: EventQuery,
    },
    Wait {
        after: EventId,
        patience: Duration,
    },
    Tick,
    EndLapsed {
        limit: u32,
        call: Call,
    },
    Release {
        request: ReleaseRequest,
        call: Call,
    },
    Doomed {
        limit: u32,
    },
    Status,
    Now,
    Groups,
}

impl Op {
    /// Its not-after, when it is one that carries any.
    pub fn call_mut(&mut self) -> Option<&mut Call> {
        match self {
            Self::Join { call, .. }
            | Self::End { call, .. }
            | Self::Claim { call, .. }
            | Self::ReleaseClaim { call, .. }
            | Self::Acquire { call, .. }
            | Self::ReleaseLeases { call, .. }
            | Self::PutTarget { call, .. }
            | Self::RemoveTarget { call, .. }
            | Self::EndLapsed { call, .. }
            | Self::Release { call, .. } => Some(call),
            _ => None,
        }
    }

    /// Its not-after.
    #[must_use]
    pub fn not_after(&self) -> Option<StoreTime> {
        match self {
            Self::Join { call, .. }
            | Self::End { call, .. }
            | Self::Claim { call, .. }
            | Self::ReleaseClaim { call, .. }
            | Self::Acquire { call, .. }
            | Self::ReleaseLeases { call, .. }
            | Self::PutTarget { call, .. }
            | Self::RemoveTarget { call, .. }
            | Self::EndLapsed { call, .. }
            | Self::Release { call, .. } => call.not_after,
            _ => None,
        }
    }

    /// Whether it is a step that writes, at least the tick.
    #[must_use]
    pub fn mutates(&self) -> bool {
        matches!(
            self,
            Self::Beat { .. }
                | Self::Tick
                | Self::Join { .. }
                | Self::End { .. }
                | Self::Claim { .. }
                | Self::ReleaseClaim { .. }
                | Self::Acquire { .. }
                | Self::ReleaseLeases { .. }
                | Self::PutTarget { .. }
                | Self::RemoveTarget { .. }
                | Self::EndLapsed { .. }
                | Self::Release { .. }
        )
    }
}

/// What the store answers.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is what a method of the store trait answers")]
pub enum Reply {
    Joined(Joined),
    Beaten(Beaten),
    Reason(EndReason),
    Member(Option<Member>),
    Members(Page<Member>),
    Claimed(Claimed),
    Done,
    Claim(Option<Claim>),
    Claims(Page<Claim>),
    Acquired(Acquired),
    GivenUp(GivenUp),
    Lease(Option<Lease>),
    Leases(Page<Lease>),
    HeldLeases(HeldLeases),
    Changed(bool),
    Target(Option<Target>),
    Targets(Page<Target>),
    Events(EventPage),
    Status(GroupStatus),
    Ended(EndedBatch),
    Released(ReleasedBatch),
    Doomed(Vec<Doomed>),
    Now(StoreTime),
    Groups(Vec<Group>),
}

/// An answer with the store's time of it: the anchor of later not-after times.
pub type Answer = (Result<Reply>, StoreTime);

/// A request under way.
#[derive(Debug)]
pub struct Request {
    /// Its number in the world.
    pub number: u64,
    /// The node that sent it.
    pub node: usize,
    /// When it was sent.
    pub sent_at: At,
    /// The group it is about.
    pub group: Group,
    /// What it asks.
    pub op: Op,
    /// Where its answer goes; nobody may listen any more.
    pub answer: oneshot::Sender<Answer>,
    /// Its answer will not get through.
    pub reply_is_lost: bool,
}
