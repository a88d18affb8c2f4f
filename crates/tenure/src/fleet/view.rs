//! A node's view of its fleet: nodes, targets and lease holders, merged from listings, events and replies, any of which
//! may be stale.
//!
//! Safety does not depend on it. A wrong entry makes the node acquire in vain or late; the next listing corrects it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::event::{Event, EventKind};
use tenure_core::fleet::{FleetNode, LeaseView};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Lease, RESERVATION, Token};
use tenure_core::placement::Node;
use tenure_core::target::TargetSpec;

use super::calls::NodeListing;
use super::settings::Nodes;
use crate::nodes::node_of;

/// How long a node that did not take a handed-off lease is excluded from handoffs.
const SHUNNED_FOR: Duration = Duration::from_secs(300);

pub(super) struct FleetView {
    /// This node.
    pub(super) me: Node,
    pub(super) targets: Option<BTreeMap<LeaseName, TargetSpec>>,
    nodes: Option<Vec<FleetNode>>,
    /// Since when the set of nodes is unchanged.
    pub(super) stable_since: Mono,
    /// The tenures that were alive at the last listing.
    alive: BTreeMap<MemberId, TenureId>,
    /// The earliest end of one of them, without a further beat.
    pub(super) first_end: Option<Mono>,
    /// `None` until the first listing.
    leases: Option<BTreeMap<LeaseName, KnownLease>>,
    /// Handed-off leases: the successor, and by when it should have acquired the lease.
    handed: BTreeMap<LeaseName, (MemberId, Mono)>,
    shunned: BTreeMap<MemberId, Mono>,
}

/// The last known state of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownLease {
    /// The token of the newest known grant.
    token: Option<Token>,
    /// When this became known.
    at: Mono,
    whose: LeaseState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LeaseState {
    Free {
        since: Mono,
    },
    Reserved {
        to: MemberId,
        until: Mono,
    },
    Held {
        by: TenureId,
        /// When it becomes free, if known.
        open_at: Option<Mono>,
    },
}

/// What an event requires beyond the update of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hint {
    pub(super) nodes_changed: bool,
    pub(super) targets_changed: bool,
    /// A grace of the group is over, so that its free leases are granted.
    pub(super) is_settled: bool,
}

impl FleetView {
    pub(super) fn new(me: MemberId, now: Mono) -> Self {
        Self {
            me: Node::new(me),
            targets: None,
            nodes: None,
            stable_since: now,
            alive: BTreeMap::new(),
            first_end: None,
            leases: None,
            handed: BTreeMap::new(),
            shunned: BTreeMap::new(),
        }
    }

    /// Whether everything that a plan needs has been read.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.is_some() && self.targets.is_some() && self.leases.is_some()
    }

    /// Number of known nodes, draining ones included.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.as_ref().map_or(0, Vec::len)
    }

    /// The nodes for a plan. A shunned node counts as dead.
    pub(super) fn nodes(&self, now: Mono) -> Vec<FleetNode> {
        let is_shunned = |node: &FleetNode| self.shunned.get(&node.node.name).is_some_and(|until| now < *until);
        self.nodes
            .iter()
            .flatten()
            .map(|node| FleetNode {
                alive: node.alive && !is_shunned(node),
                ..node.clone()
            })
            .collect()
    }

    pub(super) fn set_nodes(&mut self, seen: NodeListing, which: &Nodes, now: Mono) {
        let own = &self.me.name;
        let others = seen
            .members
            .iter()
            .filter(|member| member.alive && member.member != *own);
        self.first_end = others.map(|member| seen.at + member.expires_in).min();
        let mut nodes: Vec<FleetNode> = seen
            .members
            .iter()
            .filter(|member| member.alive && which.has(member))
            .map(|member| FleetNode {
                node: node_of(member),
                alive: true,
                draining: seen.draining.contains(&member.tenure),
            })
            .collect();
        nodes.sort_by(|a, b| a.node.name.cmp(&b.node.name));
        if let Some(me) = seen.members.iter().find(|member| member.member == *own) {
            self.me = node_of(me);
        }
        let living = seen.members.into_iter().filter(|member| member.alive);
        self.alive = living.map(|member| (member.member, member.tenure)).collect();
        if self.nodes.as_ref() != Some(&nodes) {
            self.stable_since = now;
            self.nodes = Some(nodes);
        }
        self.update_holders(now);
    }

    /// Marks leases of ended holders as free, and those of holders that are alive as held. A reservation ends with the
    /// tenure of its successor.
    fn update_holders(&mut self, now: Mono) {
        for known in self.leases.iter_mut().flat_map(BTreeMap::values_mut) {
            match &mut known.whose {
                LeaseState::Held { by, open_at } if self.alive.get(by.member()) == Some(by) => {
                    *open_at = open_at.filter(|_| by.member() == &self.me.name);
                }
                LeaseState::Held { open_at, .. } => {
                    open_at.get_or_insert(now);
                }
                LeaseState::Reserved { to, until } if !self.alive.contains_key(to) => *until = now.min(*until),
                LeaseState::Reserved { .. } | LeaseState::Free { .. } => {}
            }
        }
    }

    /// Merges a listing of all leases that started at `begun`. Later information is newer.
    pub(super) fn merge_leases(&mut self, listed: Vec<Lease>, begun: Mono, now: Mono) {
        let before = self.leases.take().unwrap_or_default();
        let mut leases: BTreeMap<LeaseName, KnownLease> = BTreeMap::new();
        for lease in listed {
            let open_at = (!lease.alive).then_some(now + lease.expires_in);
            let whose = LeaseState::Held {
                by: lease.tenure,
                open_at,
            };
            let known = KnownLease {
                token: Some(lease.token),
                at: now,
                whose,
            };
            leases.insert(lease.lease, known);
        }
        for (name, known) in before {
            let is_newer = known.at >= begun;
            let is_listed = leases.contains_key(&name);
            let is_wanted = self.targets.as_ref().is_some_and(|targets| targets.contains_key(&name));
            if is_newer {
                leases.insert(name, known);
            } else if !is_listed && is_wanted {
                // The lease is free. Keep the earlier time if it was already known to be free.
                leases.insert(name, known.freed(now));
            }
        }
        self.leases = Some(leases);
        self.update_holders(now);
        self.forget_handed();
    }

    /// Applies an event. Returns what else it requires.
    pub(super) fn apply_event(&mut self, event: &Event, now: Mono) -> Hint {
        let mut hint = Hint::default();
        match event.kind {
            EventKind::Joined | EventKind::Left | EventKind::Lapsed | EventKind::Superseded => {
                hint.nodes_changed = true
            }
            EventKind::Expelled | EventKind::NoProgress => hint.nodes_changed = true,
            // They select the nodes, and set their weights.
            EventKind::LabelsChanged => hint.nodes_changed = true,
            EventKind::TargetChanged => hint.targets_changed = true,
            EventKind::GroupSettled => hint.is_settled = true,
            EventKind::LeaseGranted | EventKind::LeaseTakenOver => {
                if let (Some(lease), Some(token), Some(by)) = (&event.lease, event.token, &event.tenure) {
                    hint.nodes_changed = !self.alive.values().any(|alive| alive == by);
                    let by = by.clone();
                    self.note(lease, Some(token), LeaseState::Held { by, open_at: None }, now);
                }
            }
            EventKind::LeaseReleased => {
                if let (Some(lease), Some(token)) = (&event.lease, event.token) {
                    // A node that hands over may be draining; no event reports that.
                    hint.nodes_changed = event.to.is_some();
                    self.freed(lease, Some(token), event.to.clone(), now);
                }
            }
            _ => {}
        }
        hint
    }

    /// A lease was released, or handed off to a successor.
    pub(super) fn freed(&mut self, lease: &LeaseName, token: Option<Token>, to: Option<MemberId>, now: Mono) {
        let whose = match to {
            Some(to) => LeaseState::Reserved {
                to,
                until: now + RESERVATION,
            },
            None => LeaseState::Free { since: now },
        };
        self.note(lease, token, whose, now);
    }

    /// We handed a lease to a node, which should acquire it.
    pub(super) fn handed(&mut self, lease: &LeaseName, to: MemberId, now: Mono) {
        self.handed.insert(lease.clone(), (to, now + RESERVATION));
    }

    /// Another member holds it, or is about to.
    pub(super) fn held_elsewhere(&mut self, lease: &LeaseName, by: TenureId, free_in: Duration, now: Mono) {
        // If we hold it, our release is in progress.
        let is_alive = by.member() != &self.me.name && self.alive.get(by.member()) == Some(&by);
        let open_at = (!is_alive).then_some(now + free_in);
        self.set(lease, None, LeaseState::Held { by, open_at }, now);
    }

    /// It is reserved for another member.
    pub(super) fn reserved(&mut self, lease: &LeaseName, to: MemberId, free_in: Duration, now: Mono) {
        let until = now + free_in;
        self.set(lease, None, LeaseState::Reserved { to, until }, now);
    }

    /// The earliest time at which it is free, as far as known.
    pub(super) fn free_from(&mut self, lease: &LeaseName, since: Mono, now: Mono) {
        self.set(lease, None, LeaseState::Free { since }, now);
    }

    /// Every free lease may be asked for from this time on, whatever was answered before.
    pub(super) fn all_free_from(&mut self, at: Mono) {
        for known in self.leases.iter_mut().flat_map(BTreeMap::values_mut) {
            if let LeaseState::Free { since } = &mut known.whose {
                *since = at.min(*since);
            }
        }
    }

    /// We hold it.
    pub(super) fn held_here(&mut self, lease: &LeaseName, token: Token, by: TenureId, now: Mono) {
        self.set(lease, Some(token), LeaseState::Held { by, open_at: None }, now);
    }

    /// Records what an event reports, unless newer information is known.
    fn note(&mut self, lease: &LeaseName, token: Option<Token>, whose: LeaseState, now: Mono) {
        let Some(known) = self.leases.as_ref().and_then(|leases| leases.get(lease)) else {
            return self.set(lease, token, whose, now);
        };
        let is_free = matches!(whose, LeaseState::Free { .. } | LeaseState::Reserved { .. });
        let is_newer = if is_free {
            token >= known.token
        } else {
            token > known.token
        };
        if !is_newer {
            return;
        }
        // A janitor's event about a lease that is already free does not restart the wait.
        let whose = match (whose, &known.whose) {
            (LeaseState::Free { since }, LeaseState::Held { open_at: Some(at), .. }) => {
                LeaseState::Free { since: since.min(*at) }
            }
            (whose, _) => whose,
        };
        self.set(lease, token, whose, now);
    }

    fn set(&mut self, lease: &LeaseName, token: Option<Token>, whose: LeaseState, now: Mono) {
        let Some(leases) = &mut self.leases else { return };
        let token = token.max(leases.get(lease).and_then(|known| known.token));
        if let LeaseState::Held { by, .. } = &whose {
            // A node that acquires leases is active.
            self.shunned.remove(by.member());
            self.handed.remove(lease);
        }
        leases.insert(lease.clone(), KnownLease { token, at: now, whose });
    }

    /// Shuns nodes that did not acquire a handed-off lease in time. Returns whether there is one.
    pub(super) fn check_handoffs(&mut self, now: Mono) -> bool {
        self.shunned.retain(|_, until| now < *until);
        let late: BTreeSet<MemberId> = self
            .handed
            .values()
            .filter(|(_, by)| *by <= now)
            .map(|(to, _)| to.clone())
            .collect();
        self.handed.retain(|_, (_, by)| *by > now);
        for to in &late {
            // A node that holds other leases was only late for this one.
            let has_some = self.leases.iter().flatten().any(|(_, known)| match &known.whose {
                LeaseState::Held { by, open_at: None } => by.member() == to,
                _ => false,
            });
            if !has_some {
                tracing::warn!(node = %to, "the node does not acquire leases handed to it; no handoffs to it for a while");
                self.shunned.insert(to.clone(), now + SHUNNED_FOR);
            }
        }
        !late.is_empty()
    }

    /// When the next handoff becomes overdue or an exclusion ends.
    pub(super) fn next_handoff_check(&self) -> Option<Mono> {
        let handed = self.handed.values().map(|(_, by)| *by);
        handed.chain(self.shunned.values().copied()).min()
    }

    /// A node that holds the lease by now has completed the handoff.
    fn forget_handed(&mut self) {
        let leases = self.leases.as_ref();
        let is_held = |lease: &LeaseName| {
            let known = leases.and_then(|leases| leases.get(lease));
            matches!(
                known.map(|known| &known.whose),
                Some(LeaseState::Held { open_at: None, .. })
            )
        };
        self.handed.retain(|lease, _| !is_held(lease));
    }

    /// The leases of the targets for a plan, except `busy` ones.
    pub(super) fn leases(&mut self, busy: impl Fn(&LeaseName) -> bool, now: Mono) -> BTreeMap<LeaseName, LeaseView> {
        let (Some(leases), Some(targets)) = (&mut self.leases, &self.targets) else {
            return BTreeMap::new();
        };
        let wanted = targets.keys().filter(|lease| !busy(lease));
        wanted
            .map(|lease| {
                // All leases are listed, so one without a known holder is free since we first wanted it.
                let known = leases.entry(lease.clone()).or_insert(KnownLease {
                    token: None,
                    at: now,
                    whose: LeaseState::Free { since: now },
                });
                (lease.clone(), known.whose.seen())
            })
            .collect()
    }
}

impl KnownLease {
    /// The same lease without a holder.
    fn freed(self, now: Mono) -> Self {
        let whose = match self.whose {
            LeaseState::Reserved { to, until } if until > now => LeaseState::Reserved { to, until },
            LeaseState::Reserved { until, .. } => LeaseState::Free { since: until },
            LeaseState::Held { open_at, .. } => LeaseState::Free {
                since: open_at.map_or(now, |at| at.min(now)),
            },
            free @ LeaseState::Free { .. } => free,
        };
        Self { at: now, whose, ..self }
    }
}

impl LeaseState {
    fn seen(&self) -> LeaseView {
        match self {
            Self::Free { since } => LeaseView::Free { since: *since },
            Self::Reserved { to, until } => LeaseView::Reserved {
                to: to.clone(),
                until: *until,
            },
            Self::Held { by, open_at } => LeaseView::Held {
                by: by.member().clone(),
                open_at: *open_at,
            },
        }
    }
}
