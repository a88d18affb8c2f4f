//! The nodes on which a fleet may place targets: the living members of a group that are not draining.
//!
//! A draining node claims its own name in the registry [`DRAINING`] under its tenure. All nodes see the mark, and it
//! ends with the tenure. The node list is built from two listings and may be stale. That is safe: placement is a
//! preference, and the lease decides.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use tenure_core::error::Result;
use tenure_core::id::{Group, MemberId, RegistryName, TenureId};
use tenure_core::lease::Lease;
use tenure_core::membership::Member;
use tenure_core::placement::{Node, Placement};
use tenure_core::store::{MAX_PAGE, PageRequest, Store};
use tenure_core::target::Target;

/// The registry in which a draining node claims its own name.
pub const DRAINING: &str = "fleet.draining";
/// The label with the weight of a node: an integer from 1 (the default) to 1,000.
pub const WEIGHT_LABEL: &str = "fleet.weight";
/// The most members that are read. A larger group is treated as not being a fleet.
pub const MAX_NODES: usize = 10_000;
/// Concurrent lease look-ups.
const LOOK_UPS: usize = 32;

/// The node of a member. Its weight comes from its label, 1 if the label is missing or invalid.
#[must_use]
pub fn node_of(member: &Member) -> Node {
    let label = member.labels.as_map().get(WEIGHT_LABEL);
    let weight = label.and_then(|weight| weight.parse().ok()).unwrap_or(1);
    Node {
        name: member.member.clone(),
        weight,
    }
}

/// Reads the nodes of a group; `None` when it has more than [`MAX_NODES`] members. O(members), in pages.
///
/// # Errors
/// `Unavailable`.
pub async fn placement_of(store: &dyn Store, group: &Group) -> Result<Option<Placement>> {
    let draining = draining(store, group).await?;
    let (mut nodes, mut after, mut read) = (Vec::new(), None, 0);
    loop {
        let page = store.members(group, &PageRequest::new(after, MAX_PAGE)?).await?;
        read += page.items.len();
        if read > MAX_NODES {
            return Ok(None);
        }
        let ready = page.items.into_iter().filter(|member| member.alive);
        nodes.extend(
            ready
                .filter(|member| !draining.contains(&member.tenure))
                .map(|member| node_of(&member)),
        );
        after = page.next;
        if after.is_none() {
            return Ok(Some(Placement::new(nodes)));
        }
    }
}

/// The tenures that are draining. Reading stops at the limit for nodes: marks of ended tenures are removed with them.
async fn draining(store: &dyn Store, group: &Group) -> Result<BTreeSet<TenureId>> {
    let registry = RegistryName::new(DRAINING)?;
    let (mut draining, mut after) = (BTreeSet::new(), None);
    loop {
        let page = PageRequest::new(after, MAX_PAGE)?;
        let page = store.claims(group, &registry, None, &page).await?;
        let marks = page
            .items
            .into_iter()
            .filter(|claim| claim.key.as_str() == claim.owner.as_str());
        draining.extend(marks.map(|claim| claim.tenure));
        after = page.next;
        if after.is_none() || draining.len() > MAX_NODES {
            return Ok(draining);
        }
    }
}

/// A target with its preferred node and its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTarget {
    /// The target.
    pub target: Target,
    /// The first node in its placement, without bounded load. A preference; the lease decides.
    pub preferred: Option<MemberId>,
    /// Its lease, if it is held.
    pub lease: Option<Lease>,
}

/// Adds the preferred node and the lease to each target. O(members + targets × nodes), in pages and single look-ups.
///
/// # Errors
/// `Unavailable`.
pub async fn placed(store: &dyn Store, group: &Group, targets: Vec<Target>) -> Result<Vec<PlacedTarget>> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let placement = placement_of(store, group).await?;
    let mut looks = Vec::with_capacity(targets.len());
    for target in targets {
        let preferred = placement
            .as_ref()
            .and_then(|placement| placement.preferred(target.target.as_str()))
            .cloned();
        looks.push(placed_one(store, group, target, preferred));
    }
    stream::iter(looks).buffered(LOOK_UPS).try_collect().await
}

async fn placed_one(
    store: &dyn Store,
    group: &Group,
    target: Target,
    preferred: Option<MemberId>,
) -> Result<PlacedTarget> {
    let lease = store.lease_of(group, &target.target).await?;
    Ok(PlacedTarget {
        target,
        preferred,
        lease,
    })
}
