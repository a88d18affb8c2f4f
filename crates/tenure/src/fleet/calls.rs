//! The calls of a fleet to its store and its source. Each is its own future, so that none waits for another.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{Lease, ReleaseOutcome, Token};
use tenure_core::membership::Member;
use tenure_core::store::{MAX_PAGE, Page, PageRequest};
use tenure_core::target::TargetSpec;
use tenure_core::timeout::Timeout;

use super::source::{MAX_TARGETS, TargetSource, check_count};
use crate::client::Context;
use crate::lease::{Acquire, LeaseGuard, Leases};
use crate::membership::Shared;
use crate::nodes::{DRAINING, MAX_NODES};
use crate::registry::{PATIENCE, Registry};

/// Time-out of the source of targets.
const SOURCE_PATIENCE: Duration = Duration::from_secs(30);

/// The event types that a fleet reads.
const KINDS: [EventKind; 12] = [
    EventKind::Joined,
    EventKind::Left,
    EventKind::Lapsed,
    EventKind::Superseded,
    EventKind::Expelled,
    EventKind::NoProgress,
    EventKind::LabelsChanged,
    EventKind::LeaseGranted,
    EventKind::LeaseReleased,
    EventKind::LeaseTakenOver,
    EventKind::TargetChanged,
    EventKind::GroupSettled,
];

/// The result of a call.
pub(super) enum CallResult {
    Nodes(Result<NodeListing>),
    Targets(Result<BTreeMap<LeaseName, TargetSpec>>),
    Leases {
        begun: Mono,
        listed: Result<Vec<Lease>>,
    },
    Events(Result<EventBatch>),
    Acquired {
        asked: Vec<LeaseName>,
        answers: Result<Vec<Acquire>>,
    },
    Released(ReleaseResult),
    Marked {
        draining: bool,
        outcome: Result<()>,
    },
}

/// The members of the group.
pub(super) struct NodeListing {
    pub(super) members: Vec<Member>,
    /// The tenures that are draining.
    pub(super) draining: BTreeSet<TenureId>,
    /// A time not later than the listing.
    pub(super) at: Mono,
}

/// A section of the event log.
pub(super) struct EventBatch {
    pub(super) events: Vec<Event>,
    pub(super) last: EventId,
    /// Whether events before these are missing.
    pub(super) missed: bool,
}

/// The result of a release.
pub(super) struct ReleaseResult {
    pub(super) lease: LeaseName,
    pub(super) token: Token,
    pub(super) to: Option<MemberId>,
    pub(super) outcome: Result<ReleaseOutcome>,
}

pub(super) async fn nodes(shared: Arc<Shared>) -> CallResult {
    CallResult::Nodes(list_nodes(&shared).await)
}

async fn list_nodes(shared: &Arc<Shared>) -> Result<NodeListing> {
    let at = shared.now();
    let members = read_all(shared, MAX_NODES, |shared, page| {
        Box::pin(async move { shared.context.store.members(&shared.group, &page).await })
    });
    let members = members.await?;
    let claims = read_all(shared, MAX_NODES, |shared, page| {
        Box::pin(async move {
            let registry = RegistryName::new(DRAINING)?;
            let (store, group) = (&shared.context.store, &shared.group);
            store.claims(group, &registry, None, &page).await
        })
    });
    let marks = claims.await?.into_iter();
    let marks = marks.filter(|claim| claim.alive && claim.key.as_str() == claim.owner.as_str());
    Ok(NodeListing {
        members,
        draining: marks.map(|claim| claim.tenure).collect(),
        at,
    })
}

pub(super) async fn leases(shared: Arc<Shared>) -> CallResult {
    let begun = shared.now();
    let listed = read_all(&shared, MAX_TARGETS, |shared, page| {
        Box::pin(async move { shared.context.store.leases(&shared.group, None, &page).await })
    });
    let listed = listed.await;
    CallResult::Leases { begun, listed }
}

/// A pending page of a listing.
type PageFuture<T> = BoxFuture<'static, Result<Page<T>>>;

/// Reads all pages of a listing, each with a time-out.
async fn read_all<T>(
    shared: &Arc<Shared>,
    most: usize,
    read: impl Fn(Arc<Shared>, PageRequest) -> PageFuture<T>,
) -> Result<Vec<T>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = read(Arc::clone(shared), PageRequest::new(after, MAX_PAGE)?);
        let page = shared.context.read(page).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
        if items.len() > most {
            let message = format!(
                "a listing of the group has more than {most} entries, the limit of a fleet; use several groups"
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
    }
}

pub(super) async fn targets(shared: Arc<Shared>, source: Arc<dyn TargetSource>) -> CallResult {
    let asked = AssertUnwindSafe(source.targets()).catch_unwind();
    let bound = Timeout::read(SOURCE_PATIENCE);
    let clock = &*shared.context.clock;
    let answer = bound.call(clock, "the source of targets", asked.map(Ok)).await;
    let targets = match answer {
        Ok(Ok(targets)) => targets,
        Ok(Err(_)) => Err(Error::new(ErrorKind::Internal, "the source of targets panicked")),
        Err(error) => Err(error),
    };
    CallResult::Targets(targets.and_then(|targets| check_count(targets.len()).map(|()| targets)))
}

/// Reads the events after an id, long-polling. Without an id: the id to start from.
pub(super) async fn events(shared: Arc<Shared>, after: Option<EventId>, patience: Duration) -> CallResult {
    CallResult::Events(listen(&shared.context, &shared.group, after, patience, &KINDS).await)
}

/// Reads events of the given types after an id, long-polling. Without an id: the id to start from, with `missed` set.
pub(super) async fn listen(
    context: &Context,
    group: &Group,
    after: Option<EventId>,
    patience: Duration,
    kinds: &[EventKind],
) -> Result<EventBatch> {
    let store = &context.store;
    let Some(after) = after else {
        let status = context.read(store.status(group)).await?;
        return Ok(EventBatch {
            events: Vec::new(),
            last: status.last_event,
            missed: true,
        });
    };
    let news = store.wait_for_events(group, after, patience);
    let bound = Timeout::read(patience + PATIENCE);
    bound.call(&*context.clock, "the store", news).await?;
    let query = EventQuery {
        after: Some(after),
        limit: MAX_PAGE,
        kinds: kinds.to_vec(),
        ..EventQuery::default()
    };
    let page = context.read(store.events(group, &query)).await?;
    Ok(EventBatch {
        events: page.events,
        last: page.last,
        missed: page.missed,
    })
}

pub(super) async fn acquire(leases: Leases, asked: Vec<LeaseName>) -> CallResult {
    let answers = leases.acquire_many(&asked).await;
    CallResult::Acquired { asked, answers }
}

/// Releases a lease or hands it off. Concurrent calls are batched.
pub(super) async fn give_up(guard: LeaseGuard, to: Option<MemberId>) -> CallResult {
    let (lease, token) = (guard.lease().clone(), guard.token());
    let outcome = match &to {
        Some(to) => guard.hand_off(to).await,
        None => guard.release().await,
    };
    CallResult::Released(ReleaseResult {
        lease,
        token,
        to,
        outcome,
    })
}

/// Marks this node as draining, or removes the mark.
pub(super) async fn mark(registry: Registry, me: MemberId, draining: bool) -> CallResult {
    let outcome = if draining {
        registry.claim(me.as_str()).await.map(drop)
    } else {
        match registry.release(me.as_str()).await {
            // There is no mark, or it belongs to an ended tenure.
            Err(error) if error.kind() == ErrorKind::NotOwner => Ok(()),
            done => done,
        }
    };
    CallResult::Marked { draining, outcome }
}
