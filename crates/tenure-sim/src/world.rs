//! The simulation loop: it advances time from one event to the next, delivers messages, and runs every check.

mod converge;
mod converge_session;
mod disturb;
mod roster;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::{Group, StoreOptions, TenureId};
use tenure_core::brake::BrakeSettings;
use tenure_core::call::Op;
use tenure_core::event::WaitForEvents;
use tenure_core::lease::WaitForGrants;
use tenure_core::session::SessionSettings;

use crate::broken::BrokenRule;
use crate::chance::Chance;
use crate::check::{self, Checker, Shadow, Violation};
use crate::fault::Mix;
use crate::history::{History, HistoryMode};
use crate::network::{Message, Network};
use crate::node::{Node, NodeConfig};
use crate::parts::Parts;
use crate::program::ProgramConfig;
use crate::server::{Server, Serving};
use crate::sink::Sink;
use crate::store_clock::StoreMachineClock;
use crate::time::{At, Drift, WorldClock};
use crate::wire::Request;

use disturb::Action;
use roster::RosterWorld;

/// The group that all programs join.
pub const GROUP: &str = "fleet";
/// The maximum ttl. Short, so that graces end within a run.
pub const MAX_TTL: Duration = Duration::from_secs(12);
/// The maximum duration of the brake.
pub const BRAKE_HOLD: Duration = Duration::from_secs(8);

/// How long a provider may be silent.
pub const STALE_AFTER: Duration = Duration::from_secs(5);
/// The grace of a session that asks for none.
pub const GRACE: Duration = Duration::from_secs(3);

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed, which determines everything.
    pub seed: u64,
    /// The number of machines.
    pub nodes: usize,
    /// The number of faults.
    pub steps: u32,
    /// The families of faults.
    pub mix: Mix,
    /// What the programs use beside claims and leases.
    pub parts: Parts,
    /// The broken rule.
    pub broken: Option<BrokenRule>,
    /// How much of the history is kept.
    pub keep: HistoryMode,
}

impl Plan {
    /// A run of the usual size with every fault.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            nodes: 5,
            steps: 25,
            mix: Mix::all(),
            parts: Parts::drawn(seed),
            broken: None,
            keep: HistoryMode::Digest,
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The digest of the history.
    pub digest: u64,
    /// The number of steps and of faults.
    pub events: u64,
    /// The duration in world time.
    pub lasted: At,
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// The end of the history, if it was kept.
    pub tail: Vec<String>,
}

/// Runs a plan to its end or to the first violation.
///
/// # Errors
/// If the system refuses a runtime.
pub fn run(plan: &Plan) -> Result<Outcome> {
    let mut world = World::new(plan)?;
    let violation = world.live().err();
    if let Some(violation) = &violation {
        world
            .history
            .aside(world.clock.now(), &format!("VIOLATION {violation}"));
    }
    Ok(Outcome {
        digest: world.history.digest(),
        events: world.history.steps(),
        lasted: world.clock.now(),
        violation,
        tail: world.history.tail(),
    })
}

struct World {
    clock: WorldClock,
    group: Group,
    network: Network,
    server: Server,
    checker: Checker,
    /// The record of the roster's group.
    providers: Checker,
    roster: Option<RosterWorld>,
    nodes: Vec<Node>,
    sink: Arc<Sink>,
    history: History,
    chance: Chance,
    mix: Mix,
    /// Whether programs use the library's fleet for their leases.
    fleet: bool,
    parts: Parts,
    /// The shortest ttl of this run.
    ttl: Duration,
    faults_left: u32,
    timeline: BTreeMap<(At, u64), Action>,
    next_action: u64,
    /// Copies of the store to roll back to, each with its record and time. All are from after the last time the store's
    /// clock fell back.
    copies: VecDeque<(usize, [Shadow; 2], At)>,
    /// The end of the last fault of the whole network.
    storm: At,
    storming: bool,
    /// Answered beats of processes that have not run since.
    answered: Vec<(usize, (TenureId, u64))>,
    /// Tenures that lapsed in a way that an exception allows.
    excused: BTreeSet<TenureId>,
    steps: u64,
    calm_since: At,
    over: bool,
}

fn store_options() -> StoreOptions {
    StoreOptions {
        max_ttl: MAX_TTL,
        brake: BrakeSettings {
            share: 0.5,
            floor: 4,
            hold: BRAKE_HOLD,
        },
        sessions: SessionSettings {
            grace: GRACE,
            ..SessionSettings::default()
        },
        ..StoreOptions::default()
    }
}

impl World {
    fn new(plan: &Plan) -> Result<Self> {
        let clock = WorldClock::default();
        let group = Group::new(GROUP)?;
        let mut chance = Chance::new(plan.seed, 1);
        let drift = Drift(i64::try_from(chance.below(20_001)).unwrap_or(0) - 10_000);
        let ttl = chance.duration(Duration::from_secs(2), MAX_TTL / 2);
        let fleet = chance.happens(500);
        // One machine more than there are names: the one that runs a second process of a name.
        let links = plan.nodes + 1;
        let network = Network::new(&clock, links, Chance::new(plan.seed, 2));
        let store_clock = StoreMachineClock::new(&clock, drift);
        let sink = Arc::<Sink>::default();
        let roster = plan.parts.rosters.then(|| RosterWorld::new(&clock, plan)).transpose()?;
        let start = NodeConfig {
            world: clock.clone(),
            network: network.clone(),
            group: GROUP.to_owned(),
            max_ttl: MAX_TTL,
            sink: Arc::clone(&sink),
            roster: roster.as_ref().map(RosterWorld::parts),
            providers: plan.nodes as u64,
            broken: plan.broken,
        };
        let nodes = (0..links).map(|index| Node::new(index, start.clone(), Chance::new(plan.seed, 100 + index as u64)));
        let mut world = Self {
            server: Server::new(store_clock, store_options(), group.clone(), plan.broken),
            checker: Checker::new(MAX_TTL),
            providers: Checker::new(MAX_TTL),
            nodes: nodes.collect(),
            sink,
            history: History::new(plan.keep),
            chance,
            mix: match roster {
                Some(_) => plan.mix.clone(),
                None => plan.mix.clone().without_ledger(),
            },
            roster,
            ttl,
            fleet,
            parts: plan.parts,
            faults_left: plan.steps,
            timeline: BTreeMap::new(),
            next_action: 0,
            copies: VecDeque::new(),
            storm: At::default(),
            storming: false,
            answered: Vec::new(),
            excused: BTreeSet::new(),
            steps: 0,
            calm_since: At::default(),
            over: false,
            clock,
            group,
            network,
        };
        world.checker.unasked_ends = plan.broken == Some(BrokenRule::SupersededFreesAtOnce);
        for node in 0..plan.nodes {
            let wait = world.chance.duration(Duration::ZERO, Duration::from_secs(1));
            world.plan(wait, Action::Boot { node, name: node });
        }
        world.plan(Duration::from_secs(2), Action::Draw);
        world.plan(Duration::from_millis(100), Action::Copy);
        Ok(world)
    }

    /// The configuration of a process with the name of a machine.
    fn habits(&self, name: usize) -> ProgramConfig {
        ProgramConfig {
            name: format!("n{name}"),
            fleet: self.fleet,
            sessions: self.parts.sessions,
            ttl: self.ttl.mul_f64([1.0, 1.0, 1.5, 2.0][name % 4]),
        }
    }

    fn live(&mut self) -> Result<(), Violation> {
        while !self.over {
            let Some(next) = self.next_instant() else {
                return Ok(());
            };
            self.clock.set(next);
            self.turn()?;
        }
        Ok(())
    }

    /// The next instant at which anything happens.
    fn next_instant(&self) -> Option<At> {
        let timers = self.nodes.iter().filter_map(Node::next_wake);
        let actions = self.timeline.first_key_value().map(|((at, _), _)| *at);
        timers
            .chain(actions)
            .chain(self.network.next_arrival())
            .chain(self.server.next_listener())
            .min()
    }

    /// Everything that happens at this instant.
    fn turn(&mut self) -> Result<(), Violation> {
        let now = self.clock.now();
        while let Some(entry) = self.timeline.first_entry().filter(|entry| entry.key().0 <= now) {
            let action = entry.remove();
            self.apply(action)?;
        }
        while let Some(message) = self.network.take_arrived() {
            self.hand_over(message)?;
        }
        self.answer_listeners();
        for node in &mut self.nodes {
            if node.next_wake().is_some_and(|at| at <= now) {
                node.fire();
            }
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].run() {
                self.watch_holder(index)?;
                self.watch_sink()?;
                self.watch_roster()?;
                let here = self.answered.extract_if(.., |(node, _)| *node == index);
                here.for_each(|(_, (tenure, reported))| self.checker.answered(&tenure, reported));
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Request(request) => match self.server.serving() {
                Serving::Up => self.serve(request)?,
                Serving::Frozen => self.server.queue(request),
                Serving::Down => self.network.reset(request),
            },
            Message::Reply {
                node,
                answer,
                to,
                reported,
            } => {
                // The send fails only if the caller has timed out.
                if to.send(answer).is_ok() {
                    self.answered
                        .extend(reported.into_iter().map(|reported| (node, reported)));
                }
                self.nodes[node].woken = true;
            }
            Message::Reset { node, to } => {
                drop(to);
                self.nodes[node].woken = true;
            }
        }
        Ok(())
    }

    /// Lets the store carry out a request, and runs the checks.
    fn serve(&mut self, request: Request) -> Result<(), Violation> {
        let now = self.clock.now();
        if let Op::WaitForEvents(WaitForEvents { patience, .. }) | Op::WaitForGrants(WaitForGrants { patience, .. }) =
            request.ask.op
        {
            self.server.listen(now + patience, request);
            return Ok(());
        }
        let step = self.server.serve(&request, now);
        self.history.note(now, &step.numbers(), || step.text());
        if let Op::BeatPulse(beat) = &step.op {
            let roster = self.roster.as_ref().map(|roster| roster.group().clone());
            let has_failed = |group: &Group| beat.failed.contains(group);
            self.checker.pulsed(&step, has_failed(&self.group))?;
            self.providers.pulsed(&step, roster.as_ref().is_some_and(has_failed))?;
        } else if step.group == self.group {
            let lapses = self.checker.step(&step)?;
            for lapse in &lapses {
                self.watch_lapse(lapse)?;
            }
        } else {
            drop(self.providers.step(&step)?);
        }
        for event in &step.events {
            self.watch_grant(&step, event)?;
        }
        let answer = (step.reply, step.now);
        self.network.reply(request, answer);
        self.steps += 1;
        if self.steps.is_multiple_of(32) {
            self.compare()?;
        }
        if !step.events.is_empty() {
            self.answer_listeners();
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), Violation> {
        check::compare(&self.checker.shadow, self.server.truth(), &self.group)?;
        match &self.roster {
            Some(roster) => check::compare(&self.providers.shadow, self.server.truth(), roster.group()),
            None => Ok(()),
        }
    }

    fn answer_listeners(&mut self) {
        for (request, reply) in self.server.take_due_listeners(self.clock.now()) {
            let answer = self.server.answer(Ok(reply));
            self.network.reply(request, answer);
        }
    }

    fn plan(&mut self, wait: Duration, action: Action) {
        self.next_action += 1;
        let at = self.clock.now() + wait;
        self.timeline.insert((at, self.next_action), action);
    }
}
