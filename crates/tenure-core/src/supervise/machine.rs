//! The state machine of the supervisor. Each event runs single steps until nothing more is due.

use std::time::Duration;

use super::{Action, Event, Evidence, OnUncertain, Primacy, Restart, Run, Settings, Stage};
use crate::clock::Mono;
use crate::lease::Token;

/// The interval between repeated KILLs, which catch children forked in between.
const AGAIN: Duration = Duration::from_millis(500);
/// The first exit code that stands for a signal.
const OF_SIGNALS: u8 = 128;

/// The supervisor of one program. The module lists its guarantees.
#[derive(Debug, Clone)]
pub struct Supervisor {
    settings: Settings,
    state: Phase,
    /// The current or latest run.
    run: Run,
    evidence: Evidence,
    /// The start of the current uncertainty.
    unclear_since: Mono,
    /// The deadline of the latest positive evidence. Uncertainty does not clear it.
    deadline: Option<Mono>,
    /// The token of the running child.
    token: Option<Token>,
    registration: Registration,
    /// The earliest next start, after failures.
    not_before: Mono,
    failures: u32,
    shutdown: Option<Shutdown>,
    /// The number of shutdown requests.
    asked: u32,
    /// The latest instant received.
    now: Mono,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No child.
    Waiting,
    /// The child is not ready.
    Starting { since: Mono },
    /// The child is ready.
    Running { since: Mono },
    /// The child or its descendants are being stopped.
    Stopping(Stop),
    /// No child, and shutting down.
    Leaving,
    /// [`Action::Exit`] was given.
    Over,
}

/// The progress of stopping a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    since: Mono,
    /// Whether TERM waits for the catalog and the drain delay.
    drains: bool,
    /// When the catalog confirmed the deregistration.
    absent_at: Option<Mono>,
    term_sent: Option<Mono>,
    /// The latest KILL.
    kill_sent: Option<Mono>,
}

/// The latest request to the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registration {
    /// No registration to withdraw.
    Absent,
    Wanted,
    /// Deregistration was requested and is not confirmed.
    Unwanted,
}

/// A decided shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shutdown {
    code: u8,
    by: Mono,
    /// The time of the second request, from which on nothing waits.
    fast_from: Option<Mono>,
}

impl Supervisor {
    /// A supervisor without a child, evidence or registration.
    #[must_use]
    pub fn new(settings: Settings, now: Mono) -> Self {
        Self {
            settings,
            state: Phase::Waiting,
            run: Run(0),
            evidence: Evidence::Uncertain("no evidence yet".to_owned()),
            unclear_since: now,
            deadline: None,
            token: None,
            registration: Registration::Absent,
            not_before: now,
            failures: 0,
            shutdown: None,
            asked: 0,
            now,
        }
    }

    /// Handles an event and returns the actions, in order.
    pub fn on(&mut self, event: Event, now: Mono) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.state == Phase::Over {
            return actions;
        }
        let now = self.now.max(now);
        self.now = now;
        // Due steps come before the event: a child that was killed at its deadline has not crashed.
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

    /// When the machine needs an [`Event::Tick`] at the latest; `None` if it needs none. Always later than the latest
    /// instant received, so that the caller does not spin.
    #[must_use]
    pub fn wake(&self) -> Option<Mono> {
        let instants = match &self.state {
            Phase::Waiting => [self.may_start_at().filter(|at| *at > self.now), None],
            Phase::Starting { .. } | Phase::Running { .. } => [self.must_stop_at(), None],
            Phase::Stopping(stop) => {
                let next = match (stop.term_sent, stop.kill_sent) {
                    (None, _) => self.term_at(stop),
                    (Some(_), None) => self.kill_at(stop),
                    (_, Some(sent)) => sent + AGAIN,
                };
                [Some(next), self.shutdown.map(|shutdown| shutdown.by)]
            }
            Phase::Leaving => [self.shutdown.map(|shutdown| shutdown.by), None],
            Phase::Over => [None, None],
        };
        instants.into_iter().flatten().min()
    }

    /// The current stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match &self.state {
            Phase::Waiting if matches!(self.evidence, Evidence::Primary(_)) => Stage::BackingOff,
            Phase::Waiting => Stage::Waiting,
            Phase::Starting { .. } => Stage::Starting,
            Phase::Running { .. } => Stage::Running,
            Phase::Stopping(stop) if stop.term_sent.is_none() => Stage::Draining,
            Phase::Stopping(_) => Stage::Stopping,
            Phase::Leaving => Stage::Leaving,
            Phase::Over => Stage::Over,
        }
    }

    /// The latest evidence.
    #[must_use]
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The deadline of the latest positive evidence.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    /// The current or latest run; `Run(0)` before the first.
    #[must_use]
    pub const fn run(&self) -> Run {
        self.run
    }

    /// Whether the service should be registered.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.registration == Registration::Wanted
    }

    fn learn(&mut self, evidence: Evidence, now: Mono) {
        let was_unclear = matches!(self.evidence, Evidence::Uncertain(_));
        match &evidence {
            Evidence::Primary(Primacy { until, .. }) => self.deadline = *until,
            Evidence::Uncertain(_) if !was_unclear => self.unclear_since = now,
            // The deadline stays: no other node can be the primary before it, and the child must be gone by then.
            Evidence::Uncertain(_) | Evidence::Replica => {}
        }
        self.evidence = evidence;
    }

    fn ready(&mut self, run: Run) {
        if let Phase::Starting { since } = self.state
            && run == self.run
        {
            self.state = Phase::Running { since };
        }
    }

    /// Handles the end of the child itself; its descendants are stopped like the child.
    fn ended(&mut self, code: u8, now: Mono, actions: &mut Vec<Action>) {
        match &mut self.state {
            Phase::Starting { since } | Phase::Running { since } => {
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
            Phase::Stopping(stop) => {
                stop.drains = false;
                // After a signal, the child's exit code is the result. A supervisor that ends because of a failure
                // keeps its own code.
                if let Some(shutdown) = &mut self.shutdown
                    && self.asked > 0
                    && shutdown.code >= OF_SIGNALS
                {
                    shutdown.code = code;
                }
            }
            Phase::Waiting | Phase::Leaving | Phase::Over => {}
        }
    }

    fn gone(&mut self, now: Mono) {
        if !matches!(self.state, Phase::Stopping(_)) {
            return;
        }
        self.state = if self.shutdown.is_some() {
            Phase::Leaving
        } else {
            self.not_before = self.not_before.max(now);
            Phase::Waiting
        };
    }

    fn absent(&mut self, now: Mono) {
        if self.registration != Registration::Unwanted {
            return;
        }
        self.registration = Registration::Absent;
        if let Phase::Stopping(stop) = &mut self.state {
            stop.absent_at.get_or_insert(now);
        }
    }

    fn unlisted(&mut self) {
        if let Phase::Stopping(stop) = &mut self.state {
            stop.drains = false;
        }
    }

    fn asked_to_end(&mut self, code: u8, now: Mono, actions: &mut Vec<Action>) {
        self.asked = self.asked.saturating_add(1);
        if self.asked == 1 {
            if self.shutdown.is_none() {
                self.leave(code, now);
            }
            match self.state {
                Phase::Waiting => {
                    self.unwant(actions);
                    self.state = Phase::Leaving;
                }
                Phase::Starting { .. } | Phase::Running { .. } => {
                    self.stop(self.registration == Registration::Wanted, now, actions)
                }
                Phase::Stopping(_) => self.unwant(actions),
                Phase::Leaving | Phase::Over => {}
            }
        } else if let Some(shutdown) = &mut self.shutdown {
            shutdown.fast_from.get_or_insert(now);
            shutdown.by = shutdown.by.min(now + self.settings.reserve * 2);
        }
    }

    fn leave(&mut self, code: u8, now: Mono) {
        self.shutdown = Some(Shutdown {
            code,
            by: now + self.settings.stop_budget,
            fast_from: None,
        });
    }

    fn stop(&mut self, drains: bool, now: Mono, actions: &mut Vec<Action>) {
        self.unwant(actions);
        self.state = Phase::Stopping(Stop {
            since: now,
            drains,
            absent_at: None,
            term_sent: None,
            kill_sent: None,
        });
    }

    /// Withdraws the registration. A shutdown requests it even if nothing was registered.
    fn unwant(&mut self, actions: &mut Vec<Action>) {
        if self.registration == Registration::Wanted {
            self.registration = Registration::Unwanted;
            actions.push(Action::Deregister);
        } else if self.shutdown.is_some() {
            actions.push(Action::Deregister);
        }
    }

    /// Takes one due step; `false` if nothing is due.
    fn step(&mut self, now: Mono, actions: &mut Vec<Action>) -> bool {
        let due = |at: Option<Mono>| at.is_some_and(|at| at <= now);
        match self.state {
            Phase::Waiting if due(self.may_start_at()) && !due(self.too_late_at()) => {
                self.run = Run(self.run.0.saturating_add(1));
                self.token = self.evidence.token();
                self.state = Phase::Starting { since: now };
                actions.push(Action::Start(self.run));
            }
            Phase::Starting { .. } | Phase::Running { .. } if due(self.must_stop_at()) => {
                self.stop(false, now, actions);
            }
            Phase::Running { .. }
                if self.registration != Registration::Wanted && matches!(self.evidence, Evidence::Primary(_)) =>
            {
                self.registration = Registration::Wanted;
                actions.push(Action::Register);
            }
            Phase::Stopping(stop) => return self.step_of_stop(stop, now, actions),
            Phase::Leaving if self.registration != Registration::Unwanted => self.exit(actions),
            Phase::Leaving if due(self.shutdown.map(|shutdown| shutdown.by)) => self.exit(actions),
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
        } else if self.shutdown.is_some_and(|shutdown| shutdown.by <= now) {
            // A process that survives KILL hangs in the kernel; nothing more can be done.
            self.exit(actions);
            return true;
        } else {
            return false;
        }
        self.state = Phase::Stopping(stop);
        true
    }

    fn exit(&mut self, actions: &mut Vec<Action>) {
        self.state = Phase::Over;
        let code = self.shutdown.map_or(0, |shutdown| shutdown.code);
        actions.push(Action::Exit(code));
    }

    /// When a child may start, with the current evidence.
    fn may_start_at(&self) -> Option<Mono> {
        let is_primary = matches!(self.evidence, Evidence::Primary(_));
        (is_primary && self.shutdown.is_none()).then_some(self.not_before)
    }

    /// When a child must be stopped because of the deadline.
    fn too_late_at(&self) -> Option<Mono> {
        self.deadline.map(|at| before(at, self.settings.head_start()))
    }

    /// When a child must be stopped, with the current evidence.
    fn must_stop_at(&self) -> Option<Mono> {
        let by_evidence = match (&self.evidence, self.settings.on_uncertain) {
            (Evidence::Replica, _) => Some(Mono::default()),
            // Another node may have been the primary in between: every sink rejects the child's token.
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
        // A confirmation after this time does not restart the drain.
        let at_most = stop.since + self.settings.deregister;
        let drained = stop.absent_at.map_or(at_most, |at| at.min(at_most)) + self.settings.drain;
        let fast = self.shutdown.and_then(|shutdown| shutdown.fast_from);
        [Some(drained), fast, self.must_stop_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(drained)
    }

    fn kill_at(&self, stop: &Stop) -> Mono {
        let reserve = self.settings.reserve;
        let after_grace = stop.term_sent.unwrap_or(stop.since) + self.settings.grace;
        let shutdown = self.shutdown.map(|shutdown| before(shutdown.by, reserve));
        let deadline = self.deadline.map(|at| before(at, reserve));
        [Some(after_grace), shutdown, deadline]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(after_grace)
    }
}

fn before(at: Mono, by: Duration) -> Mono {
    Mono::from_origin(at.since_origin().saturating_sub(by))
}
