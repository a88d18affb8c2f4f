//! The planner of a fleet: what a node should do next, given its view.
//!
//! A fleet places each target on one of its nodes. The *lease* in the store decides which node works on a target; this
//! module only decides when to acquire it and when to release it. So nodes may see different, outdated or wrong
//! members, and the worst result is a target on a less preferred node.
//!
//! - **Acquire.** Each target ranks the nodes in an order that all nodes agree on ([`crate::placement`]). When its
//!   lease is available, the first node acquires it immediately, and the node at rank *k* after *k* ×
//!   [`Settings::rank_delay`]. So usually the first node gets it without contention, and if that one fails, another
//!   does: every target is acquired as long as any node lives. The same order applies to a new target, a free lease,
//!   the lease of a dead holder, and one whose reservation has expired.
//! - **Hand off.** A node hands a lease to a more preferred node only when the membership has been stable for
//!   [`Settings::stability`] and it has held the lease for [`Settings::min_hold`]. A node that leaves and returns costs
//!   one move when it leaves, and one back when it has stayed. A lease is never handed to a dead or draining node, and
//!   a node without leases first gets one, to see whether it takes it. A handed-off lease only moves up in the common
//!   order, so even nodes with different views cannot pass it around in a circle. (With bounded load the order depends
//!   on the view, and only [`Settings::min_hold`] limits the moves between nodes whose views differ permanently.)
//! - **Drain.** A draining node acquires nothing and hands over everything immediately, regardless of stability.
//! - **Release.** The lease of a paused or removed target is released immediately.
//!
//! The planner knows no store, task or clock: the caller passes a view and carries out the plan. Planning is O(targets
//! × nodes).

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

/// The settings of a fleet, which should be the same on all its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The delay per rank before a node acquires a target. Shorter replaces a failed preferred node sooner; longer
    /// means fewer futile calls.
    pub rank_delay: Duration,
    /// The maximum rank delay, for any number of nodes.
    pub max_rank_delay: Duration,
    /// How long the membership must be unchanged before leases move to preferred nodes. Longer moves less when nodes
    /// come and go; shorter balances the load sooner.
    pub stability: Duration,
    /// The minimum time a lease stays on a node before it moves to a preferred one: at most one such move of a target
    /// in this time.
    pub min_hold: Duration,
    /// The maximum number of concurrent hand-offs to preferred nodes. Does not limit draining.
    pub max_handoffs: usize,
    /// Limits every node to its share ([`crate::placement::level`]), which places some targets away from their
    /// preferred nodes. For fleets with few targets per node.
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

/// A node of the fleet, as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetNode {
    /// Its name and weight.
    pub node: Node,
    /// Whether its tenure is alive.
    pub alive: bool,
    /// Whether it is draining; it acquires nothing more.
    pub draining: bool,
}

/// A lease that this node does not hold, as last seen. The local clock says when it is available; the store decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseView {
    /// It is free, and available from `since`: when it was first seen free, or the later time that the store said to
    /// retry at.
    Free {
        /// When it becomes available.
        since: Mono,
    },
    /// It was handed off to a node that has not acquired it yet.
    Reserved {
        /// The successor.
        to: MemberId,
        /// The end of the reservation.
        until: Mono,
    },
    /// Another node holds it.
    Held {
        /// The holder.
        by: MemberId,
        /// When it becomes available; `None` while the holder is alive.
        open_at: Option<Mono>,
    },
}

/// The view that a node plans with.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The local time.
    pub now: Mono,
    /// This node. It counts as alive, whatever the list of nodes says.
    pub me: &'a Node,
    /// Whether this node is draining.
    pub draining: bool,
    /// The nodes of the fleet.
    pub nodes: &'a [FleetNode],
    /// Since when the nodes are unchanged: names, weights, alive, draining.
    pub stable_since: Mono,
    /// The targets to work on.
    pub targets: &'a BTreeMap<LeaseName, TargetSpec>,
    /// Free leases and those of other nodes. A target whose lease is neither here nor held is ignored.
    pub leases: &'a BTreeMap<LeaseName, LeaseView>,
    /// The leases this node holds, and since when.
    pub held: &'a BTreeMap<LeaseName, Mono>,
}

/// Why a lease is released without a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// The target is paused.
    Paused,
    /// The target was removed.
    Removed,
    /// This node is draining, and no other node can take it.
    Draining,
}

impl GiveUp {
    /// The name for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Removed => "removed",
            Self::Draining => "draining",
        }
    }
}

/// The next actions of a node. A fleet converges by repeatedly carrying out a plan and planning again; a plan that is
/// carried out only in part is harmless.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Leases to acquire.
    pub acquire: Vec<LeaseName>,
    /// Leases to hand off after their work has ended.
    pub hand_off: Vec<(LeaseName, MemberId)>,
    /// Leases to release after their work has ended.
    pub release: Vec<(LeaseName, GiveUp)>,
    /// When to plan again without further events; a time that is not in the future means after this plan.
    pub look_again: Option<Mono>,
}

impl Plan {
    /// Whether there is nothing to do now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.acquire.is_empty() && self.hand_off.is_empty() && self.release.is_empty()
    }
}
