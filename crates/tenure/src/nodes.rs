//! The nodes that a fleet may place targets on, as a store tells them: the living members of its group that do not drain.
//!
//! A node that is on its way out claims its own name in the registry [`DRAINING`], under the tenure that is about to end;
//! so everybody can see it, and the mark cannot outlive it. What is known here is put together from two listings and may
//! be out of date by the time it is there. That harms nobody: placement is only a preference, and the lease decides.

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
/// The label that says how much a node weighs against the others: a whole number from 1 (as without it) to 1,000.
pub const WEIGHT_LABEL: &str = "fleet.weight";
/// The most members that are read. A larger group is hardly a fleet.
pub const MAX_NODES: usize = 10_000;
/// How many leases are looked up at once.
const LOOK_UPS: usize = 32;

/// A member as a node, with the weight that it has by its label; 1 when the label is none.
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

/// The tenures that are on their way out. More than there may be nodes are not read: marks of ended tenures go with them.
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

/// A target, where a fleet would rather have it, and who works on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The target.
    pub target: Target,
    /// The node it is placed on first, without bounded load. Only a preference; the lease decides.
    pub preferred: Option<MemberId>,
    /// Its lease, when somebody holds it.
    pub lease: Option<Lease>,
}

/// Tells where targets would rather be, and who holds their leases. O(members + targets × nodes), in pages and single
/// look-ups.
///
/// # Errors
/// `Unavailable`.
pub async fn look_at(store: &dyn Store, group: &Group, targets: Vec<Target>) -> Result<Vec<Placed>> {
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
        looks.push(look_at_one(store, group, target, preferred));
    }
    stream::iter(looks).buffered(LOOK_UPS).try_collect().await
}

async fn look_at_one(store: &dyn Store, group: &Group, target: Target, preferred: Option<MemberId>) -> Result<Placed> {
    let lease = store.lease_of(group, &target.target).await?;
    Ok(Placed {
        target,
        preferred,
        lease,
    })
}
