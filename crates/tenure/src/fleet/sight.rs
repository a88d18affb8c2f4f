//! What a node sees of its fleet: nodes, targets, and whose the leases are. Put together from listings, events and the
//! answers to its own calls, each of which may be older than another.
//!
//! Nothing here is relied on for safety. What is wrong here makes the node ask in vain, or later than it could; the next
//! listing puts it right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::event::{Event, EventKind};
use tenure_core::fleet::{FleetNode, Seen};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Lease, RESERVATION, Token};
use tenure_core::placement::Node;
use tenure_core::target::TargetSpec;

use super::errand::SeenNodes;
use super::settings::Nodes;
use crate::nodes::node_of;

/// How long a node that did not come for what was handed to it is handed nothing more, nor waited for.
const SHUNNED_FOR: Duration = Duration::from_secs(300);

pub(super) struct Sight {
    /// This node.
    pub(super) me: Node,
    pub(super) targets: Option<BTreeMap<LeaseName, TargetSpec>>,
    nodes: Option<Vec<FleetNode>>,
    /// Since when they are the same.
    pub(super) stable_since: Mono,
    /// The tenures that were alive at the last look.
    alive: BTreeMap<MemberId, TenureId>,
    /// When the first of them ends, if it is not heard of again.
    pub(super) first_end: Option<Mono>,
    /// `None` until they were listed.
    leases: Option<BTreeMap<LeaseName, Known>>,
    /// What we handed to whom, and by when that node should have come for it.
    handed: BTreeMap<LeaseName, (MemberId, Mono)>,
    shunned: BTreeMap<MemberId, Mono>,
}

/// A lease as last heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// Of the newest grant that was heard of.
    token: Option<Token>,
    /// When we heard of it.
    at: Mono,
    whose: Whose,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Whose {
    Free {
        since: Mono,
    },
    Reserved {
        to: MemberId,
        until: Mono,
    },
    Held {
        by: TenureId,
        /// When it can be had, if we were told, or have seen its holder's end.
        open_at: Option<Mono>,
    },
}

/// What an event means for the fleet, beyond what was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hint {
    pub(super) nodes_changed: bool,
    pub(super) targets_changed: bool,
}

impl Sight {
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

    /// Whether everything was looked at that a plan needs.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.is_some() && self.targets.is_some() && self.leases.is_some()
    }

    /// How many nodes are there, draining ones included.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.as_ref().map_or(0, Vec::len)
    }

    /// The nodes for a plan. One that is shunned counts as dead.
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

    pub(super) fn saw_nodes(&mut self, seen: SeenNodes, which: &Nodes, now: Mono) {
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
        self.judge_holders(now);
    }

    /// Opens the leases of holders that have ended, and closes those of holders that turned out alive.
    fn judge_holders(&mut self, now: Mono) {
        for known in self.leases.iter_mut().flat_map(BTreeMap::values_mut) {
            if let Whose::Held { by, open_at } = &mut known.whose {
                if self.alive.get(by.member()) == Some(by) {
                    *open_at = open_at.filter(|_| by.member() == &self.me.name);
                } else {
                    open_at.get_or_insert(now);
                }
            }
        }
    }

    /// Takes a listing of all leases that was begun at `begun`. What we heard since then is newer.
    pub(super) fn saw_leases(&mut self, listed: Vec<Lease>, begun: Mono, now: Mono) {
        let before = self.leases.take().unwrap_or_default();
        let mut leases: BTreeMap<LeaseName, Known> = BTreeMap::new();
        for lease in listed {
            let open_at = (!lease.alive).then_some(now + lease.expires_in);
            let whose = Whose::Held {
                by: lease.tenure,
                open_at,
            };
            let known = Known {
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
                // Nobody holds it. Since when, we know better if we knew it already.
                leases.insert(name, known.freed(now));
            }
        }
        self.leases = Some(leases);
        self.judge_holders(now);
        self.forget_handed();
    }

    /// Takes an event, and tells what else it calls for.
    pub(super) fn heard(&mut self, event: &Event, now: Mono) -> Hint {
        let mut hint = Hint::default();
        match event.kind {
            EventKind::Joined | EventKind::Left | EventKind::Lapsed | EventKind::Superseded | EventKind::Expelled => {
                hint.nodes_changed = true;
            }
            EventKind::TargetChanged => hint.targets_changed = true,
            EventKind::LeaseGranted | EventKind::LeaseTakenOver => {
                if let (Some(lease), Some(token), Some(by)) = (&event.lease, event.token, &event.tenure) {
                    hint.nodes_changed = !self.alive.values().any(|alive| alive == by);
                    let by = by.clone();
                    self.note(lease, Some(token), Whose::Held { by, open_at: None }, now);
                }
            }
            EventKind::LeaseReleased => {
                if let (Some(lease), Some(token)) = (&event.lease, event.token) {
                    // A node that hands over may be draining, of which no event tells.
                    hint.nodes_changed = event.to.is_some();
                    self.freed(lease, Some(token), event.to.clone(), now);
                }
            }
            _ => {}
        }
        hint
    }

    /// A lease was given up, to a successor or to whoever comes.
    pub(super) fn freed(&mut self, lease: &LeaseName, token: Option<Token>, to: Option<MemberId>, now: Mono) {
        let whose = match to {
            Some(to) => Whose::Reserved {
                to,
                until: now + RESERVATION,
            },
            None => Whose::Free { since: now },
        };
        self.note(lease, token, whose, now);
    }

    /// We handed a lease to a node, and expect it to come.
    pub(super) fn handed(&mut self, lease: &LeaseName, to: MemberId, now: Mono) {
        self.handed.insert(lease.clone(), (to, now + RESERVATION));
    }

    /// Somebody else has it, or will.
    pub(super) fn refused(&mut self, lease: &LeaseName, by: TenureId, free_in: Duration, now: Mono) {
        // Our own is one that is just being given up.
        let is_alive = by.member() != &self.me.name && self.alive.get(by.member()) == Some(&by);
        let open_at = (!is_alive).then_some(now + free_in);
        self.set(lease, None, Whose::Held { by, open_at }, now);
    }

    /// It is kept for somebody else.
    pub(super) fn reserved(&mut self, lease: &LeaseName, to: MemberId, free_in: Duration, now: Mono) {
        let until = now + free_in;
        self.set(lease, None, Whose::Reserved { to, until }, now);
    }

    /// It can be had at that time at the earliest, as far as we know.
    pub(super) fn free_from(&mut self, lease: &LeaseName, since: Mono, now: Mono) {
        self.set(lease, None, Whose::Free { since }, now);
    }

    /// It is ours.
    pub(super) fn ours(&mut self, lease: &LeaseName, token: Token, by: TenureId, now: Mono) {
        self.set(lease, Some(token), Whose::Held { by, open_at: None }, now);
    }

    /// Notes what an event tells, unless something newer is known.
    fn note(&mut self, lease: &LeaseName, token: Option<Token>, whose: Whose, now: Mono) {
        let Some(known) = self.leases.as_ref().and_then(|leases| leases.get(lease)) else {
            return self.set(lease, token, whose, now);
        };
        let is_free = matches!(whose, Whose::Free { .. } | Whose::Reserved { .. });
        let is_newer = if is_free {
            token >= known.token
        } else {
            token > known.token
        };
        if !is_newer {
            return;
        }
        // The janitor's event about a lease that could be had already starts no new wait.
        let whose = match (whose, &known.whose) {
            (Whose::Free { since }, Whose::Held { open_at: Some(at), .. }) => Whose::Free { since: since.min(*at) },
            (whose, _) => whose,
        };
        self.set(lease, token, whose, now);
    }

    fn set(&mut self, lease: &LeaseName, token: Option<Token>, whose: Whose, now: Mono) {
        let Some(leases) = &mut self.leases else { return };
        let token = token.max(leases.get(lease).and_then(|known| known.token));
        if let Whose::Held { by, .. } = &whose {
            // A node that takes leases is one.
            self.shunned.remove(by.member());
            self.handed.remove(lease);
        }
        leases.insert(lease.clone(), Known { token, at: now, whose });
    }

    /// A node that did not come for what was handed to it in time is shunned for a while. Whether there is one.
    pub(super) fn judge_heirs(&mut self, now: Mono) -> bool {
        self.shunned.retain(|_, until| now < *until);
        let late: BTreeSet<MemberId> = self
            .handed
            .values()
            .filter(|(_, by)| *by <= now)
            .map(|(to, _)| to.clone())
            .collect();
        self.handed.retain(|_, (_, by)| *by > now);
        for to in &late {
            // One that has others came too late for this one, and no more.
            let has_some = self.leases.iter().flatten().any(|(_, known)| match &known.whose {
                Whose::Held { by, open_at: None } => by.member() == to,
                _ => false,
            });
            if !has_some {
                tracing::warn!(node = %to, "it does not come for what is handed to it; it is left out for a while");
                self.shunned.insert(to.clone(), now + SHUNNED_FOR);
            }
        }
        !late.is_empty()
    }

    /// When there is something to judge.
    pub(super) fn judge_at(&self) -> Option<Mono> {
        let handed = self.handed.values().map(|(_, by)| *by);
        handed.chain(self.shunned.values().copied()).min()
    }

    /// Whoever holds a lease by now has come for it.
    fn forget_handed(&mut self) {
        let leases = self.leases.as_ref();
        let is_held = |lease: &LeaseName| {
            let known = leases.and_then(|leases| leases.get(lease));
            matches!(known.map(|known| &known.whose), Some(Whose::Held { open_at: None, .. }))
        };
        self.handed.retain(|lease, _| !is_held(lease));
    }

    /// The leases of the targets for a plan, without those that `busy` names.
    pub(super) fn leases(&mut self, busy: impl Fn(&LeaseName) -> bool, now: Mono) -> BTreeMap<LeaseName, Seen> {
        let (Some(leases), Some(targets)) = (&mut self.leases, &self.targets) else {
            return BTreeMap::new();
        };
        let wanted = targets.keys().filter(|lease| !busy(lease));
        wanted
            .map(|lease| {
                // All leases are listed: one that nobody was ever heard to hold is free, since we first wanted it.
                let known = leases.entry(lease.clone()).or_insert(Known {
                    token: None,
                    at: now,
                    whose: Whose::Free { since: now },
                });
                (lease.clone(), known.whose.seen())
            })
            .collect()
    }
}

impl Known {
    /// As it is when nobody holds it.
    fn freed(self, now: Mono) -> Self {
        let whose = match self.whose {
            Whose::Reserved { to, until } if until > now => Whose::Reserved { to, until },
            Whose::Reserved { until, .. } => Whose::Free { since: until },
            Whose::Held { open_at, .. } => Whose::Free {
                since: open_at.map_or(now, |at| at.min(now)),
            },
            free @ Whose::Free { .. } => free,
        };
        Self { at: now, whose, ..self }
    }
}

impl Whose {
    fn seen(&self) -> Seen {
        match self {
            Self::Free { since } => Seen::Free { since: *since },
            Self::Reserved { to, until } => Seen::Reserved {
                to: to.clone(),
                until: *until,
            },
            Self::Held { by, open_at } => Seen::Held {
                by: by.member().clone(),
                open_at: *open_at,
            },
        }
    }
}
