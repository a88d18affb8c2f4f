//! The planner.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{GiveUp, LeaseView, Plan, Settings, View};
use crate::clock::Mono;
use crate::id::{LeaseName, MemberId};
use crate::placement::{Load, Placement, level};

/// Plans the next actions of this node. Deterministic: the same view gives the same plan. The module has the rules.
#[must_use]
pub fn plan(view: &View<'_>, settings: &Settings) -> Plan {
    let placement = placement_of(view);
    let mut planner = Planner {
        view,
        settings,
        homes: homes(view, settings, &placement),
        placement: &placement,
        tried: tried(view),
        plan: Plan::default(),
    };
    for (lease, since) in view.held {
        planner.about_held(lease, *since);
    }
    if !view.draining {
        for (lease, spec) in view.targets {
            if !spec.paused && !view.held.contains_key(lease) {
                planner.about_other(lease);
            }
        }
    }
    planner.plan
}

/// The nodes that can receive targets: alive and not draining; this node counts as alive.
fn placement_of(view: &View<'_>) -> Placement {
    let others = view
        .nodes
        .iter()
        .filter(|node| node.alive && !node.draining && node.node.name != view.me.name)
        .map(|node| node.node.clone());
    let me = (!view.draining).then(|| view.me.clone());
    Placement::new(others.chain(me))
}

/// The node of each target to work on, in the view of this node.
fn homes<'a>(view: &View<'a>, settings: &Settings, placement: &Placement) -> BTreeMap<&'a LeaseName, MemberId> {
    let active: Vec<_> = view.targets.iter().filter(|(_, spec)| !spec.paused).collect();
    if !settings.bounded_load {
        return active
            .into_iter()
            .filter_map(|(lease, _)| Some((lease, placement.preferred(lease.as_str())?.clone())))
            .collect();
    }
    let loads: Vec<Load<'_>> = active
        .iter()
        .map(|(lease, spec)| Load {
            target: lease.as_str(),
            weight: spec.weight,
            on: at_work(view, lease),
        })
        .collect();
    let homes = level(placement, &loads);
    active
        .into_iter()
        .zip(homes)
        .filter_map(|((lease, _), home)| Some((lease, home?.clone())))
        .collect()
}

/// The node that holds a target's lease, or has it reserved.
fn at_work<'a>(view: &View<'a>, lease: &LeaseName) -> Option<&'a MemberId> {
    if view.held.contains_key(lease) {
        return Some(&view.me.name);
    }
    match view.leases.get(lease)? {
        LeaseView::Held { by, open_at: None } => Some(by),
        LeaseView::Reserved { to, until } if *until > view.now => Some(to),
        _ => None,
    }
}

/// The nodes that are known to acquire leases, because they hold some, and those with a pending reservation.
fn tried<'a>(view: &View<'a>) -> BTreeMap<&'a MemberId, Trial> {
    let mut tried = BTreeMap::new();
    for seen in view.leases.values() {
        match seen {
            LeaseView::Held { by, open_at: None } => {
                tried.insert(by, Trial::Passed);
            }
            LeaseView::Reserved { to, until } if *until > view.now => {
                tried.entry(to).or_insert(Trial::Running);
            }
            _ => {}
        }
    }
    tried
}

/// Whether a node is known to take the leases handed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Running,
    Passed,
}

struct Planner<'a> {
    view: &'a View<'a>,
    settings: &'a Settings,
    placement: &'a Placement,
    homes: BTreeMap<&'a LeaseName, MemberId>,
    tried: BTreeMap<&'a MemberId, Trial>,
    plan: Plan,
}

impl Planner<'_> {
    fn about_held(&mut self, lease: &LeaseName, since: Mono) {
        let give_up = match self.view.targets.get(lease) {
            None => Some(GiveUp::Removed),
            Some(spec) if spec.paused => Some(GiveUp::Paused),
            Some(_) => None,
        };
        if let Some(why) = give_up {
            self.plan.release.push((lease.clone(), why));
            return;
        }
        match self.homes.get(lease) {
            Some(home) if *home == self.view.me.name => {}
            Some(home) if self.view.draining => self.plan.hand_off.push((lease.clone(), home.clone())),
            Some(home) => self.consider_handing_off(lease, since, home.clone()),
            // No home means no node at all: this node drains and no other is alive.
            None => self.plan.release.push((lease.clone(), GiveUp::Draining)),
        }
    }

    fn consider_handing_off(&mut self, lease: &LeaseName, since: Mono, to: MemberId) {
        let stable_at = self.view.stable_since + self.settings.stability;
        let at = stable_at.max(since + self.settings.min_hold);
        if at > self.view.now {
            self.look_at(at);
        } else if self.plan.hand_off.len() >= self.settings.max_handoffs {
            self.look_at(self.view.now);
        } else if self.may_have(&to) {
            self.plan.hand_off.push((lease.clone(), to));
        }
    }

    /// A node without leases first gets only one. It may be a member that does not run the fleet, and a lease handed to
    /// it would stay idle until the reservation ends. The outcome of the first one shows.
    fn may_have(&self, to: &MemberId) -> bool {
        match self.tried.get(to) {
            Some(Trial::Passed) => true,
            Some(Trial::Running) => false,
            None => self.plan.hand_off.iter().all(|(_, other)| other != to),
        }
    }

    fn about_other(&mut self, lease: &LeaseName) {
        let Some(seen) = self.view.leases.get(lease) else {
            return;
        };
        let open_at = match seen {
            LeaseView::Reserved { to, .. } if *to == self.view.me.name => {
                self.plan.acquire.push(lease.clone());
                return;
            }
            LeaseView::Free { since } => *since,
            LeaseView::Reserved { until, .. } => *until,
            LeaseView::Held { open_at: Some(at), .. } => *at,
            LeaseView::Held { open_at: None, .. } => return,
        };
        // The rank is the most expensive part and is not needed before the lease is available.
        if open_at > self.view.now {
            self.look_at(open_at);
            return;
        }
        let at = open_at + self.delay(lease);
        if at > self.view.now {
            self.look_at(at);
        } else {
            self.plan.acquire.push(lease.clone());
        }
    }

    /// How long this node waits for the nodes that precede it in the target's order. A target's home is first in that
    /// order, also if bounded load has chosen it.
    fn delay(&self, lease: &LeaseName) -> Duration {
        let (target, me) = (lease.as_str(), &self.view.me.name);
        let own = self.placement.position(target, me).unwrap_or(0);
        let rank = match self.homes.get(lease) {
            Some(home) if home == me => 0,
            Some(home) if self.placement.position(target, home) > Some(own) => own + 1,
            _ => own,
        };
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        self.settings
            .rank_delay
            .saturating_mul(rank)
            .min(self.settings.max_rank_delay)
    }

    fn look_at(&mut self, at: Mono) {
        let earliest = self.plan.look_again.map_or(at, |before| before.min(at));
        self.plan.look_again = Some(earliest);
    }
}
