//! The machine: one state, one step at a time, until nothing more is to be done now.

use std::time::Duration;

use super::{Action, Event, Evidence, OnUncertain, Primacy, Restart, Run, Settings, Stage};
use crate::clock::Mono;
use crate::lease::Token;

/// How often a child that should be dead is killed again: what it forks meanwhile is not in the first blow.
const AGAIN: Duration = Duration::from_millis(500);
/// The exit codes that stand for a signal begin here.
const OF_SIGNALS: u8 = 128;

/// Decides for one program. See the module's documentation for what it keeps.
#[derive(Debug, Clone)]
pub struct Supervisor {
    settings: Settings,
    state: State,
    /// The latest run, present or past.
    run: Run,
    evidence: Evidence,
    /// Since when the evidence has been unclear.
    unclear_since: Mono,
    /// When the latest evidence for this node stops counting. Doubt does not lift it.
    deadline: Option<Mono>,
    /// The token under which the child was started.
    token: Option<Token>,
    entry: Entry,
    /// No child starts before; after failures.
    not_before: Mono,
    failures: u32,
    way_out: Option<WayOut>,
    /// How often somebody asked to end.
    asked: u32,
    /// The latest instant that the machine was told.
    now: Mono,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No child.
    Waiting,
    /// A child that is not ready.
    Starting { since: Mono },
    /// A child that is ready.
    Running { since: Mono },
    /// A child that has to go, or what it left behind.
    Stopping(Stop),
    /// No child, and none to come.
    Leaving,
    /// [`Action::Exit`] was given.
    Over,
}

/// How far the stop of a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    since: Mono,
    /// TERM waits for the catalog and the drain delay.
    drains: bool,
    /// When the catalog confirmed that the service is gone.
    absent_at: Option<Mono>,
    term_sent: Option<Mono>,
    /// The latest of them.
    kill_sent: Option<Mono>,
}

/// What the catalog was last asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Nothing that would have to be taken back.
    Absent,
    Wanted,
    /// To be gone, which is not confirmed yet.
    Unwanted,
}

/// The end of the supervisor is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WayOut {
    code: u8,
    by: Mono,
    /// A second wish to end: from here on nothing is waited for.
    fast_from: Option<Mono>,
}

impl Supervisor {
    /// A supervisor without a child that knows nothing yet, and whose service is in no catalog.
    #[must_use]
    pub fn new(settings: Settings, now: Mono) -> Self {
        Self {
            settings,
            state: State::Waiting,
            run: Run(0),
            evidence: Evidence::Uncertain("nothing was heard yet".to_owned()),
            unclear_since: now,
            deadline: None,
            token: None,
            entry: Entry::Absent,
            not_before: now,
            failures: 0,
            way_out: None,
            asked: 0,
            now,
        }
    }

    /// Takes in what happened, and tells what is to be done now, in order.
    pub fn on(&mut self, event: Event, now: Mono) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.state == State::Over {
            return actions;
        }
        let now = self.now.max(now);
        self.now = now;
        // What was due before it happened comes first: a child that was killed because its deadline has passed has not
        // crashed.
        while self.step(now, &mut actions) {}
        match event {
            Event::Evidence(evidence) => self.learn(evidence, now),
            Event::Ready(run) => self.ready(run),
            Event::Ended(run, code) if run == self.run => self.ended(code, now, &mut actions),
            Event::Gone(run) if run == self.run => self.gone(now),
            Event::Absent => self.absent(now),
            Event::Unlisted => self.unlisted(),
            Event::Stop(code) => self.asked_to_end(code, now, &mut actions),
            Event::Ended(..) | Event::Gone(_) | Event::Tick => {}
        }
        while self.step(now, &mut actions) {}
        actions
    }

    /// When the machine wants an [`Event::Tick`] at the latest. `None`: nothing happens by itself. Always later than what
    /// it has been told, so that nobody spins.
    #[must_use]
    pub fn wake(&self) -> Option<Mono> {
        let instants = match &self.state {
            State::Waiting => [self.may_start_at().filter(|at| *at > self.now), None],
            State::Starting { .. } | State::Running { .. } => [self.must_stop_at(), None],
            State::Stopping(stop) => {
                let next = match (stop.term_sent, stop.kill_sent) {
                    (None, _) => self.term_at(stop),
                    (Some(_), None) => self.kill_at(stop),
                    (_, Some(sent)) => sent + AGAIN,
                };
                [Some(next), self.way_out.map(|way_out| way_out.by)]
            }
            State::Leaving => [self.way_out.map(|way_out| way_out.by), None],
            State::Over => [None, None],
        };
        instants.into_iter().flatten().min()
    }

    /// Where it stands.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match &self.state {
            State::Waiting if matches!(self.evidence, Evidence::Primary(_)) => Stage::BackingOff,
            State::Waiting => Stage::Waiting,
            State::Starting { .. } => Stage::Starting,
            State::Running { .. } => Stage::Running,
            State::Stopping(stop) if stop.term_sent.is_none() => Stage::Draining,
            State::Stopping(_) => Stage::Stopping,
            State::Leaving => Stage::Leaving,
            State::Over => Stage::Over,
        }
    }

    /// The latest evidence.
    #[must_use]
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// When the latest evidence for this node stops counting.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    /// The present run, or the latest one. `Run(0)` before the first.
    #[must_use]
    pub const fn run(&self) -> Run {
        self.run
    }

    /// Whether the service is wanted in the catalog.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.entry == Entry::Wanted
    }

    fn learn(&mut self, evidence: Evidence, now: Mono) {
        let was_unclear = matches!(self.evidence, Evidence::Uncertain(_));
        match &evidence {
            Evidence::Primary(Primacy { until, .. }) => self.deadline = *until,
            Evidence::Uncertain(_) if !was_unclear => self.unclear_since = now,
            // The deadline stays: until then nobody else can be the primary, and what is left of the child must be gone.
            Evidence::Uncertain(_) | Evidence::Replica => {}
        }
        self.evidence = evidence;
    }

    fn ready(&mut self, run: Run) {
        if let State::Starting { since } = self.state
            && run == self.run
        {
            self.state = State::Running { since };
        }
    }

    /// The child itself is over; what it left behind is stopped like the child.
    fn ended(&mut self, code: u8, now: Mono, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Starting { since } | State::Running { since } => {
                let ran = now.since(*since);
                match self.settings.restart {
                    Restart::OnFailure { first, most } if code != 0 => {
                        self.failures = if ran >= most { 0 } else { self.failures };
                        let pause = first.saturating_mul(2u32.saturating_pow(self.failures)).min(most);
                        self.failures = self.failures.saturating_add(1);
                        self.not_before = now + pause;
                    }
                    _ => self.leave(code, now),
                }
                self.stop(false, now, actions);
            }
            State::Stopping(stop) => {
                stop.drains = false;
                // Whoever sent a signal wants to know how the child took it. A supervisor that ends because it has failed
                // has failed, however well the child took that.
                if let Some(way_out) = &mut self.way_out
                    && self.asked > 0
                    && way_out.code >= OF_SIGNALS
                {
                    way_out.code = code;
                }
            }
            State::Waiting | State::Leaving | State::Over => {}
        }
    }

    fn gone(&mut self, now: Mono) {
        if !matches!(self.state, State::Stopping(_)) {
            return;
        }
        self.state = if self.way_out.is_some() {
            State::Leaving
        } else {
            self.not_before = self.not_before.max(now);
            State::Waiting
        };
    }

    fn absent(&mut self, now: Mono) {
        if self.entry != Entry::Unwanted {
            return;
        }
        self.entry = Entry::Absent;
        if let State::Stopping(stop) = &mut self.state {
            stop.absent_at.get_or_insert(now);
        }
    }

    fn unlisted(&mut self) {
        if let State::Stopping(stop) = &mut self.state {
            stop.drains = false;
        }
    }

    fn asked_to_end(&mut self, code: u8, now: Mono, actions: &mut Vec<Action>) {
        self.asked = self.asked.saturating_add(1);
        if self.asked == 1 {
            if self.way_out.is_none() {
                self.leave(code, now);
            }
            match self.state {
                State::Waiting => {
                    self.unwant(actions);
                    self.state = State::Leaving;
                }
                State::Starting { .. } | State::Running { .. } => self.stop(self.entry == Entry::Wanted, now, actions),
                State::Stopping(_) => self.unwant(actions),
                State::Leaving | State::Over => {}
            }
        } else if let Some(way_out) = &mut self.way_out {
            way_out.fast_from.get_or_insert(now);
            way_out.by = way_out.by.min(now + self.settings.reserve * 2);
        }
    }

    fn leave(&mut self, code: u8, now: Mono) {
        self.way_out = Some(WayOut {
            code,
            by: now + self.settings.stop_budget,
            fast_from: None,
        });
    }

    fn stop(&mut self, drains: bool, now: Mono, actions: &mut Vec<Action>) {
        self.unwant(actions);
        self.state = State::Stopping(Stop {
            since: now,
            drains,
            absent_at: None,
            term_sent: None,
            kill_sent: None,
        });
    }

    /// Out of the catalog, or never into it. On the way out it is said even when nothing was ever wanted.
    fn unwant(&mut self, actions: &mut Vec<Action>) {
        if self.entry == Entry::Wanted {
            self.entry = Entry::Unwanted;
            actions.push(Action::Deregister);
        } else if self.way_out.is_some() {
            actions.push(Action::Deregister);
        }
    }

    /// Does one thing that is due. `false` when nothing is.
    fn step(&mut self, now: Mono, actions: &mut Vec<Action>) -> bool {
        let due = |at: Option<Mono>| at.is_some_and(|at| at <= now);
        match self.state {
            State::Waiting if due(self.may_start_at()) && !due(self.too_late_at()) => {
                self.run = Run(self.run.0.saturating_add(1));
                self.token = self.evidence.token();
                self.state = State::Starting { since: now };
                actions.push(Action::Start(self.run));
            }
            State::Starting { .. } | State::Running { .. } if due(self.must_stop_at()) => {
                self.stop(false, now, actions);
            }
            State::Running { .. } if self.entry != Entry::Wanted && matches!(self.evidence, Evidence::Primary(_)) => {
                self.entry = Entry::Wanted;
                actions.push(Action::Register);
            }
            State::Stopping(stop) => return self.step_of_stop(stop, now, actions),
            State::Leaving if self.entry != Entry::Unwanted => self.exit(actions),
            State::Leaving if due(self.way_out.map(|way_out| way_out.by)) => self.exit(actions),
            _ => return false,
        }
        true
    }

    fn step_of_stop(&mut self, mut stop: Stop, now: Mono, actions: &mut Vec<Action>) -> bool {
        let kill_at = stop.kill_sent.map_or_else(|| self.kill_at(&stop), |sent| sent + AGAIN);
        if stop.term_sent.is_none() && self.term_at(&stop) <= now {
            stop.term_sent = Some(now);
            actions.push(Action::Term(self.run));
        } else if stop.term_sent.is_some() && kill_at <= now {
            stop.kill_sent = Some(now);
            actions.push(Action::Kill(self.run));
        } else if self.way_out.is_some_and(|way_out| way_out.by <= now) {
            // Nothing more can be done: a process that does not even die of KILL hangs in the kernel.
            self.exit(actions);
            return true;
        } else {
            return false;
        }
        self.state = State::Stopping(stop);
        true
    }

    fn exit(&mut self, actions: &mut Vec<Action>) {
        self.state = State::Over;
        let code = self.way_out.map_or(0, |way_out| way_out.code);
        actions.push(Action::Exit(code));
    }

    /// When a child may start, as things are.
    fn may_start_at(&self) -> Option<Mono> {
        let is_primary = matches!(self.evidence, Evidence::Primary(_));
        (is_primary && self.way_out.is_none()).then_some(self.not_before)
    }

    /// When a child would have to be stopped for the deadline's sake.
    fn too_late_at(&self) -> Option<Mono> {
        self.deadline.map(|at| before(at, self.settings.head_start()))
    }

    /// When a child has to be stopped, as things are.
    fn must_stop_at(&self) -> Option<Mono> {
        let by_evidence = match (&self.evidence, self.settings.on_uncertain) {
            (Evidence::Replica, _) => Some(Mono::default()),
            // Primary again, after somebody else may have been: the child works under a token that no sink takes.
            (Evidence::Primary(primacy), _) if primacy.token != self.token => Some(Mono::default()),
            (Evidence::Uncertain(_), OnUncertain::StopAfter(after)) => Some(self.unclear_since + after),
            (Evidence::Uncertain(_), OnUncertain::Keep) | (Evidence::Primary(_), _) => None,
        };
        [by_evidence, self.too_late_at()].into_iter().flatten().min()
    }

    fn term_at(&self, stop: &Stop) -> Mono {
        if !stop.drains {
            return stop.since;
        }
        // A confirmation that comes after its time does not begin the drain anew.
        let at_most = stop.since + self.settings.deregister;
        let drained = stop.absent_at.map_or(at_most, |at| at.min(at_most)) + self.settings.drain;
        let fast = self.way_out.and_then(|way_out| way_out.fast_from);
        [Some(drained), fast, self.must_stop_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(drained)
    }

    fn kill_at(&self, stop: &Stop) -> Mono {
        let reserve = self.settings.reserve;
        let after_grace = stop.term_sent.unwrap_or(stop.since) + self.settings.grace;
        let way_out = self.way_out.map(|way_out| before(way_out.by, reserve));
        let deadline = self.deadline.map(|at| before(at, reserve));
        [Some(after_grace), way_out, deadline]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(after_grace)
    }
}

fn before(at: Mono, by: Duration) -> Mono {
    Mono::from_origin(at.since_origin().saturating_sub(by))
}
