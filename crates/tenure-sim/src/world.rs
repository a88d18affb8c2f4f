//! The world: it moves time from one event to the next, hands things over, and looks at everything.

mod converge;
mod disturb;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::{Group, StoreOptions, TenureId};
use tenure_core::brake::BrakeSettings;
use tenure_core::call::{Op, Reply};
use tenure_core::event::WaitForEvents;

use crate::broken::Broken;
use crate::chance::Chance;
use crate::check::{self, Checker, Shadow, Violation};
use crate::fault::Mix;
use crate::history::{History, Keep};
use crate::network::{Network, Parcel};
use crate::node::{Node, Start};
use crate::program::Habits;
use crate::server::{Server, Serving};
use crate::sink::Sink;
use crate::store_clock::StoreMachineClock;
use crate::time::{At, Drift, WorldClock};
use crate::wire::Request;

use disturb::Change;

/// The group that everybody joins.
pub const GROUP: &str = "fleet";
/// The longest ttl. Short, so that graces end within a run.
pub const MAX_TTL: Duration = Duration::from_secs(12);
/// How long the brake holds at most.
pub const BRAKE_HOLD: Duration = Duration::from_secs(8);

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How many machines there are.
    pub nodes: usize,
    /// How many faults there are.
    pub steps: u32,
    /// Which.
    pub mix: Mix,
    /// What is broken on purpose.
    pub broken: Option<Broken>,
    /// How much of the history is kept.
    pub keep: Keep,
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
            broken: None,
            keep: Keep::Digest,
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Tells this history from any other.
    pub digest: u64,
    /// How many steps and faults there were.
    pub events: u64,
    /// How long the world lasted.
    pub lasted: At,
    /// The rule that did not hold.
    pub violation: Option<Violation>,
    /// The end of the history, if it was kept.
    pub tail: Vec<String>,
}

/// Runs a plan to its end, or to the first violation.
///
/// # Errors
/// When the system refuses a runtime.
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
    nodes: Vec<Node>,
    sink: Arc<Sink>,
    history: History,
    chance: Chance,
    mix: Mix,
    /// Whether the library's fleet shares out the leases.
    fleet: bool,
    /// The shortest ttl of this world.
    ttl: Duration,
    faults_left: u32,
    timeline: BTreeMap<(At, u64), Change>,
    next_change: u64,
    /// Copies of the store to go back to, with the account of each and when it was made. All are from since the store's
    /// clock fell back last.
    copies: VecDeque<(usize, Shadow, At)>,
    /// When the network as a whole was last in trouble.
    storm: At,
    storming: bool,
    /// Beats that were answered to a process that has not run since.
    answered: Vec<(usize, (TenureId, u64))>,
    /// Tenures that lapsed in a way that an exception allows.
    excused: BTreeSet<TenureId>,
    steps: u64,
    calm_since: At,
    over: bool,
}

impl World {
    fn new(plan: &Plan) -> Result<Self> {
        let clock = WorldClock::default();
        let group = Group::new(GROUP)?;
        let mut chance = Chance::new(plan.seed, 1);
        let drift = Drift(i64::try_from(chance.below(20_001)).unwrap_or(0) - 10_000);
        let ttl = chance.duration(Duration::from_secs(2), MAX_TTL / 2);
        let fleet = chance.happens(500);
        let options = StoreOptions {
            max_ttl: MAX_TTL,
            brake: BrakeSettings {
                share: 0.5,
                floor: 4,
                hold: BRAKE_HOLD,
            },
            ..StoreOptions::default()
        };
        // One machine more than there are names: the one that starts under somebody else's.
        let links = plan.nodes + 1;
        let network = Network::new(&clock, links, Chance::new(plan.seed, 2));
        let store_clock = StoreMachineClock::new(&clock, drift);
        let sink = Arc::<Sink>::default();
        let start = Start {
            world: clock.clone(),
            network: network.clone(),
            group: GROUP.to_owned(),
            max_ttl: MAX_TTL,
            sink: Arc::clone(&sink),
            broken: plan.broken,
        };
        let nodes = (0..links).map(|index| Node::new(index, start.clone(), Chance::new(plan.seed, 100 + index as u64)));
        let mut world = Self {
            server: Server::new(store_clock, options, group.clone(), plan.broken),
            checker: Checker::new(MAX_TTL),
            nodes: nodes.collect(),
            sink,
            history: History::new(plan.keep),
            chance,
            mix: plan.mix.clone(),
            ttl,
            fleet,
            faults_left: plan.steps,
            timeline: BTreeMap::new(),
            next_change: 0,
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
        world.checker.unasked_ends = plan.broken == Some(Broken::SupersededFreesAtOnce);
        for node in 0..plan.nodes {
            let wait = world.chance.duration(Duration::ZERO, Duration::from_secs(1));
            world.plan(wait, Change::Boot { node, name: node });
        }
        world.plan(Duration::from_secs(2), Change::Draw);
        world.plan(Duration::from_millis(100), Change::Copy);
        Ok(world)
    }

    /// How a process under the name of a machine behaves.
    fn habits(&self, name: usize) -> Habits {
        Habits {
            name: format!("n{name}"),
            fleet: self.fleet,
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
        let changes = self.timeline.first_key_value().map(|((at, _), _)| *at);
        timers
            .chain(changes)
            .chain(self.network.next_arrival())
            .chain(self.server.next_listener())
            .min()
    }

    /// Everything that happens at this instant.
    fn turn(&mut self) -> Result<(), Violation> {
        let now = self.clock.now();
        while let Some(entry) = self.timeline.first_entry().filter(|entry| entry.key().0 <= now) {
            let change = entry.remove();
            self.change(change)?;
        }
        while let Some(parcel) = self.network.take_arrived() {
            self.hand_over(parcel)?;
        }
        self.tell_listeners();
        for node in &mut self.nodes {
            if node.next_wake().is_some_and(|at| at <= now) {
                node.fire();
            }
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].run() {
                self.watch_holder(index)?;
                self.watch_sink()?;
                let here = self.answered.extract_if(.., |(node, _)| *node == index);
                here.for_each(|(_, (tenure, told))| self.checker.answered(&tenure, told));
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, parcel: Parcel) -> Result<(), Violation> {
        match parcel {
            Parcel::Request(request) => match self.server.serving() {
                Serving::Up => self.serve(request)?,
                Serving::Frozen => self.server.stall(request),
                Serving::Down => self.network.reset(request),
            },
            Parcel::Answer { node, answer, to, told } => {
                // It fails only when the caller has given up.
                if to.send(answer).is_ok() {
                    self.answered.extend(told.into_iter().map(|told| (node, told)));
                }
                self.nodes[node].stirred = true;
            }
            Parcel::Reset { node, to } => {
                drop(to);
                self.nodes[node].stirred = true;
            }
        }
        Ok(())
    }

    /// The store carries a request out, and everybody looks.
    fn serve(&mut self, request: Request) -> Result<(), Violation> {
        let now = self.clock.now();
        if let Op::WaitForEvents(WaitForEvents { after, patience }) = request.ask.op {
            self.server.listen(after, now + patience, request);
            return Ok(());
        }
        let step = self.server.serve(&request, now);
        self.history.note(now, &step.numbers(), || step.text());
        let lapses = self.checker.step(&step)?;
        for lapse in &lapses {
            self.watch_lapse(lapse)?;
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
            self.tell_listeners();
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), Violation> {
        check::compare(&self.checker.shadow, self.server.truth(), &self.group)
    }

    fn tell_listeners(&mut self) {
        for request in self.server.heard(self.clock.now()) {
            let answer = self.server.answer(Ok(Reply::WaitForEvents(())));
            self.network.reply(request, answer);
        }
    }

    fn plan(&mut self, wait: Duration, change: Change) {
        self.next_change += 1;
        let at = self.clock.now() + wait;
        self.timeline.insert((at, self.next_change), change);
    }
}
