//! Simulated leases without a store: grants available leases and counts moves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::*;

/// The time from an action until every node sees it.
const STEP: Duration = Duration::from_millis(50);
/// The same as in a store.
const RESERVATION: Duration = Duration::from_secs(5);
/// The time from the death of a holder until its leases are available.
const TTL: Duration = Duration::from_secs(1);

pub(super) fn at(ms: u64) -> Mono {
    Mono::from_origin(Duration::from_millis(ms))
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).unwrap()
}

struct Running {
    node: Node,
    draining: bool,
    /// The names that it sees; `None` for all.
    sees: Option<BTreeSet<MemberId>>,
    nodes: Vec<FleetNode>,
    stable_since: Mono,
    /// When it first saw each lease free.
    free_since: BTreeMap<LeaseName, Mono>,
}

enum State {
    Free,
    Held {
        by: MemberId,
        since: Mono,
        ended: Option<Mono>,
    },
    Reserved {
        to: MemberId,
        until: Mono,
    },
}

pub(super) struct World {
    now: Mono,
    settings: Settings,
    targets: BTreeMap<LeaseName, TargetSpec>,
    leases: BTreeMap<LeaseName, State>,
    last_holder: BTreeMap<LeaseName, MemberId>,
    nodes: BTreeMap<MemberId, Running>,
    /// The number of moves of each target.
    pub(super) moves: BTreeMap<LeaseName, usize>,
    /// The number of acquire calls.
    pub(super) asked: usize,
    handed: BTreeMap<LeaseName, MemberId>,
}

impl World {
    pub(super) fn new(settings: Settings, targets: usize) -> Self {
        let targets: BTreeMap<_, _> = (0..targets)
            .map(|n| (lease(&format!("t-{n:05}")), TargetSpec::default()))
            .collect();
        Self {
            now: at(1_000_000),
            settings,
            leases: targets.keys().map(|name| (name.clone(), State::Free)).collect(),
            targets,
            last_holder: BTreeMap::new(),
            nodes: BTreeMap::new(),
            moves: BTreeMap::new(),
            asked: 0,
            handed: BTreeMap::new(),
        }
    }

    pub(super) fn join(&mut self, name: &str, weight: u32) {
        let name = MemberId::new(name).unwrap();
        let node = Node {
            name: name.clone(),
            weight,
        };
        let running = Running {
            node,
            draining: false,
            sees: None,
            nodes: Vec::new(),
            stable_since: self.now,
            free_since: BTreeMap::new(),
        };
        self.nodes.insert(name, running);
    }

    /// Stops a node gracefully: its leases are free immediately.
    pub(super) fn leave(&mut self, name: &str) {
        self.end(name, Duration::ZERO);
    }

    /// Kills a node: its leases become available after its ttl.
    pub(super) fn kill(&mut self, name: &str) {
        self.end(name, TTL);
    }

    fn end(&mut self, name: &str, after: Duration) {
        self.nodes.remove(&MemberId::new(name).unwrap());
        let now = self.now;
        for state in self.leases.values_mut() {
            if let State::Held { by, ended, .. } = state
                && by.as_str() == name
            {
                ended.get_or_insert(now + after);
            }
        }
    }

    pub(super) fn drain(&mut self, name: &str) {
        self.nodes.get_mut(&MemberId::new(name).unwrap()).unwrap().draining = true;
    }

    pub(super) fn blind(&mut self, name: &str, sees: &[&str]) {
        let node = self.nodes.get_mut(&MemberId::new(name).unwrap()).unwrap();
        node.sees = Some(sees.iter().map(|name| MemberId::new(name).unwrap()).collect());
    }

    /// Sets the lease of target `n`.
    pub(super) fn put(&mut self, n: usize, whose: &str, reserved: bool, free: bool) {
        let whose = MemberId::new(whose).unwrap();
        let state = if free {
            State::Free
        } else if reserved {
            State::Reserved {
                to: whose,
                until: self.now + RESERVATION,
            }
        } else {
            let ended = (!self.nodes.contains_key(&whose)).then_some(self.now);
            State::Held {
                by: whose,
                since: self.now,
                ended,
            }
        };
        self.leases.insert(lease(&format!("t-{n:05}")), state);
    }

    pub(super) fn held_by(&self, name: &str) -> usize {
        let held = |state: &&State| matches!(state, State::Held { by, ended: None, .. } if by.as_str() == name);
        self.leases.values().filter(held).count()
    }

    /// The number of targets on each living node, ascending.
    pub(super) fn counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self.nodes.keys().map(|name| self.held_by(name.as_str())).collect();
        counts.sort_unstable();
        counts
    }

    /// The number of leases ever handed to that name.
    pub(super) fn handed_to(&self, name: &str) -> usize {
        self.handed.values().filter(|to| to.as_str() == name).count()
    }

    /// Advances time: in steps while a node acts, else directly to the next time that a node wants to plan. So a
    /// missing wake-up shows.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let names: Vec<MemberId> = self.nodes.keys().cloned().collect();
            let mut next = end;
            for name in names {
                if let Some(at) = self.turn(&name) {
                    next = next.min(at);
                }
            }
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
        }
    }

    /// Lets one node look, plan and act; returns when it wants to plan again.
    fn turn(&mut self, name: &MemberId) -> Option<Mono> {
        self.look(name);
        let node = &self.nodes[name];
        let (mut leases, mut held) = (BTreeMap::new(), BTreeMap::new());
        for (lease, state) in &self.leases {
            let seen = match state {
                State::Held { by, since, ended: None } if by == name => {
                    held.insert(lease.clone(), *since);
                    continue;
                }
                State::Held { by, ended, .. } => LeaseView::Held {
                    by: by.clone(),
                    open_at: *ended,
                },
                State::Reserved { to, until } => LeaseView::Reserved {
                    to: to.clone(),
                    until: *until,
                },
                State::Free => LeaseView::Free {
                    since: node.free_since[lease],
                },
            };
            leases.insert(lease.clone(), seen);
        }
        let view = View {
            now: self.now,
            me: &node.node,
            draining: node.draining,
            nodes: &node.nodes,
            stable_since: node.stable_since,
            targets: &self.targets,
            leases: &leases,
            held: &held,
        };
        let plan = plan(&view, &self.settings);
        let next = if plan.is_idle() {
            plan.look_again
        } else {
            Some(self.now + STEP)
        };
        self.carry_out(name, plan);
        next
    }

    /// Updates its view of the members and the free leases.
    fn look(&mut self, name: &MemberId) {
        let sees = self.nodes[name].sees.clone();
        let ghosts = sees
            .iter()
            .flatten()
            .filter(|name| !self.nodes.contains_key(name))
            .map(|name| FleetNode {
                node: Node::new(name.clone()),
                alive: true,
                draining: false,
            });
        let there = self
            .nodes
            .values()
            .filter(|node| sees.as_ref().is_none_or(|sees| sees.contains(&node.node.name)));
        let nodes: Vec<FleetNode> = there
            .map(|node| FleetNode {
                node: node.node.clone(),
                alive: true,
                draining: node.draining,
            })
            .chain(ghosts)
            .collect();
        let node = self.nodes.get_mut(name).unwrap();
        if node.nodes != nodes {
            node.nodes = nodes;
            node.stable_since = self.now;
        }
        for (lease, state) in &self.leases {
            match state {
                State::Free => {
                    node.free_since.entry(lease.clone()).or_insert(self.now);
                }
                _ => {
                    node.free_since.remove(lease);
                }
            }
        }
    }

    fn carry_out(&mut self, name: &MemberId, plan: Plan) {
        for lease in plan.acquire {
            self.asked += 1;
            let now = self.now;
            let open = match &self.leases[&lease] {
                State::Free => true,
                State::Held { ended, .. } => ended.is_some_and(|at| at <= now),
                State::Reserved { to, until } => to == name || *until <= now,
            };
            if open {
                let held = State::Held {
                    by: name.clone(),
                    since: now,
                    ended: None,
                };
                self.leases.insert(lease.clone(), held);
                if self
                    .last_holder
                    .insert(lease.clone(), name.clone())
                    .is_some_and(|before| before != *name)
                {
                    *self.moves.entry(lease).or_default() += 1;
                }
            }
        }
        for (lease, to) in plan.hand_off {
            self.handed.insert(lease.clone(), to.clone());
            let reserved = State::Reserved {
                to,
                until: self.now + RESERVATION,
            };
            self.leases.insert(lease, reserved);
        }
        for (lease, _) in plan.release {
            self.leases.insert(lease, State::Free);
        }
    }
}
