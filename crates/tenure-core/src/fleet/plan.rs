//! The planning itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{GiveUp, Plan, Seen, Settings, View};
use crate::clock::Mono;
use crate::id::{LeaseName, MemberId};
use crate::placement::{Load, Placement, level};

/// Decides what this node should do now. Deterministic: the same view gives the same plan. See the module for the rules.
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

/// The nodes that may be given something: alive, not draining, and this one.
fn placement_of(view: &View<'_>) -> Placement {
    let others = view
        .nodes
        .iter()
        .filter(|node| node.alive && !node.draining && node.node.name != view.me.name)
        .map(|node| node.node.clone());
    let me = (!view.draining).then(|| view.me.clone());
    Placement::new(others.chain(me))
}

/// Where each target that is to be worked on belongs, as far as this node sees.
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

/// Who works on a target now, or is about to.
fn at_work<'a>(view: &View<'a>, lease: &LeaseName) -> Option<&'a MemberId> {
    if view.held.contains_key(lease) {
        return Some(&view.me.name);
    }
    match view.leases.get(lease)? {
        Seen::Held { by, open_at: None } => Some(by),
        Seen::Reserved { to, until } if *until > view.now => Some(to),
        _ => None,
    }
}

/// The nodes that are known to come for leases, since they have some, or that something is on its way to.
fn tried<'a>(view: &View<'a>) -> BTreeMap<&'a MemberId, Trial> {
    let mut tried = BTreeMap::new();
    for seen in view.leases.values() {
        match seen {
            Seen::Held { by, open_at: None } => {
                tried.insert(by, Trial::Passed);
            }
            Seen::Reserved { to, until } if *until > view.now => {
                tried.entry(to).or_insert(Trial::Running);
            }
            _ => {}
        }
    }
    tried
}

/// Whether a node comes for what is handed to it.
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
            // Without a home there is no node, not even this one: it drains, and nobody else is there.
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

    /// A node that has nothing yet gets one lease at first: it may be a member that does not run the fleet, and what is
    /// handed to it lies idle until the reservation ends. What becomes of that one will be seen.
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
            Seen::Reserved { to, .. } if *to == self.view.me.name => {
                self.plan.acquire.push(lease.clone());
                return;
            }
            Seen::Free { since } => *since,
            Seen::Reserved { until, .. } => *until,
            Seen::Held { open_at: Some(at), .. } => *at,
            Seen::Held { open_at: None, .. } => return,
        };
        // The rank costs the most to find, and is of no use before the lease can be had.
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

    /// How long this node leaves a target to those before it in the target's order. A target's home comes first in it,
    /// also when bounded load has put it there.
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
