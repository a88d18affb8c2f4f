//! What a node of a fleet should do next: a decision, from what it sees.
//!
//! A fleet shares targets among its nodes, one node at a time each. Who works on a target is decided by its *lease*, in
//! the store; what is decided here is only when to ask for it and when to give it up. So nodes may see different members,
//! late, or wrongly, and the worst that comes of it is a target in a place where it would not rather be.
//!
//! - **Asking.** A target prefers nodes in an order that all agree on ([`crate::placement`]). When its lease can be had, the
//!   first in that order asks at once, and the one in place *k* after *k* × [`Settings::rank_delay`]. So the first one
//!   usually gets it without a crowd, and when that one does not come, for whatever reason, another does: every target is
//!   asked for by somebody as long as there is anybody. The same order holds for a new target, a free lease, the lease of
//!   a dead holder, and one whose reservation nobody came for.
//! - **Handing off.** A node hands a lease to a node that is preferred over it only when the membership has been stable for
//!   [`Settings::stability`] and it has held the lease for [`Settings::min_hold`]; a node that comes and goes costs one move
//!   when it goes, and one back when it has stayed. A lease is never handed to a node that is dead or draining, and a node
//!   that has nothing yet gets one lease first, to see whether it comes for it. Since all agree on the order, a lease
//!   that is handed off only ever climbs in it: even nodes that see different members cannot pass it round in a circle.
//!   (With bounded load the order depends on what is seen, and only [`Settings::min_hold`] bounds the moves of nodes that
//!   see different things for ever.)
//! - **Draining.** A draining node asks for nothing and hands over everything at once, without minding stability.
//! - **Giving up.** The lease of a target that is paused or gone is released at once.
//!
//! It refuses to know a store, a task, or the time: the caller brings what was seen, and takes away what to do. Planning
//! is O(targets × nodes).

mod plan;
#[cfg(test)]
mod tests;

pub use plan::plan;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Mono;
use crate::id::{LeaseName, MemberId};
use crate::placement::Node;
use crate::target::TargetSpec;

/// How a fleet behaves. All its nodes should have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How much later each next node in a target's order asks for it. Shorter covers for a preferred node that does not
    /// come sooner; longer makes fewer nodes ask in vain.
    pub rank_delay: Duration,
    /// The longest such delay, however many nodes there are.
    pub max_rank_delay: Duration,
    /// How long the membership has to be the same before leases are handed to nodes that are preferred. Longer moves less
    /// when nodes come and go; shorter levels the load sooner.
    pub stability: Duration,
    /// How long a lease stays where it is before it is handed to a node that is preferred: at most one such move of a
    /// target in this time.
    pub min_hold: Duration,
    /// At most this many leases are handed to preferred nodes at a time. Draining is not bounded by it.
    pub max_handoffs: usize,
    /// Whether no node is to have more than its share ([`crate::placement::level`]), at the price of some targets away
    /// from their preferred nodes. For fleets with few targets per node.
    pub bounded_load: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rank_delay: Duration::from_millis(200),
            max_rank_delay: Duration::from_secs(2),
            stability: Duration::from_secs(10),
            min_hold: Duration::from_secs(30),
            max_handoffs: 200,
            bounded_load: false,
        }
    }
}

/// Another node, or this one, as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetNode {
    /// Its name and weight.
    pub node: Node,
    /// Whether its tenure is alive.
    pub alive: bool,
    /// Whether it is on its way out: it takes nothing more.
    pub draining: bool,
}

/// A lease that is not ours, as last seen. Our clock tells when it can be had; the store decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nobody holds it. It can be had from `since` on: when that was first seen, or (later than now) when the store said
    /// to ask again.
    Free {
        /// See above.
        since: Mono,
    },
    /// It was handed off to a node that has not come for it yet.
    Reserved {
        /// That node.
        to: MemberId,
        /// When anybody may have it.
        until: Mono,
    },
    /// Somebody holds it.
    Held {
        /// The holder.
        by: MemberId,
        /// When it can be had; `None` as long as the holder is alive.
        open_at: Option<Mono>,
    },
}

/// What a node knows when it plans.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Now.
    pub now: Mono,
    /// This node. It counts as alive, whatever the list of nodes says or leaves out.
    pub me: &'a Node,
    /// Whether this node is on its way out.
    pub draining: bool,
    /// The nodes of the fleet.
    pub nodes: &'a [FleetNode],
    /// Since when they have been the same: names, weights, alive, draining.
    pub stable_since: Mono,
    /// What there is to work on.
    pub targets: &'a BTreeMap<LeaseName, TargetSpec>,
    /// The leases of others, and free ones. Nothing is done about a target whose lease is neither here nor held.
    pub leases: &'a BTreeMap<LeaseName, Seen>,
    /// What this node holds, and since when.
    pub held: &'a BTreeMap<LeaseName, Mono>,
}

/// Why a lease is given up without a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// The target is paused.
    Paused,
    /// The target is gone.
    Removed,
    /// This node is draining, and there is no other to take it.
    Draining,
}

impl GiveUp {
    /// In one word, for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Removed => "removed",
            Self::Draining => "draining",
        }
    }
}

/// What to do now. Doing it, and looking again with what came of it, is how a fleet converges; a plan that is carried out
/// in part, or not at all, harms nobody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Ask for these leases.
    pub acquire: Vec<LeaseName>,
    /// End the work on these, then hand them off.
    pub hand_off: Vec<(LeaseName, MemberId)>,
    /// End the work on these, then release them.
    pub release: Vec<(LeaseName, GiveUp)>,
    /// When there may be something more to do, if nothing is heard until then. Not later than now: as soon as this is
    /// done.
    pub look_again: Option<Mono>,
}

impl Plan {
    /// Whether there is nothing to do now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.acquire.is_empty() && self.hand_off.is_empty() && self.release.is_empty()
    }
}
