//! The begin and end of faults.

use std::time::Duration;

use tenure_core::time::micros;

use super::{Mix, World};
use crate::check::{Checker, Shadow, Violation};
use crate::fault::Fault;
use crate::ledger::LedgerServing;
use crate::network::Conditions;
use crate::server::Serving;
use crate::time::At;

/// How often a copy of the store is made, and how many are kept.
const COPY_EVERY: Duration = Duration::from_millis(250);
const COPIES: usize = 64;

/// An action scheduled for a time.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Draw the next fault.
    Draw,
    /// Copy the store, to roll back to.
    Copy,
    /// Start a process with the name of a machine.
    Boot { node: usize, name: usize },
    /// Send `SIGCONT`.
    Continue { node: usize },
    /// Resume the machine.
    Wake { node: usize },
    /// Restore the link.
    Reconnect { node: usize },
    /// End the delays of a slow client.
    Hasten { node: usize },
    /// Let the ledger answer again.
    CalmLedger,
    /// Kill the second process of a name.
    KillTwin,
    /// End the storm.
    Calm,
    /// Let the store serve again, with its data.
    Resume,
    /// Let the store serve again, without the newest part of its data.
    RollBack { lag: Duration },
    /// Let the store serve again, empty.
    RestartEmpty,
    /// End all faults.
    Heal,
    /// After that, check convergence.
    CheckConvergence,
}

impl World {
    pub(super) fn apply(&mut self, action: Action) -> Result<(), Violation> {
        if !matches!(action, Action::Copy | Action::Draw) {
            self.history
                .note(self.clock.now(), &[7], || format!("world   {action:?}"));
        }
        match action {
            Action::Draw => self.draw(),
            Action::Copy => self.copy(),
            Action::Boot { node, name } => self.boot(node, name),
            Action::Continue { node } => self.nodes[node].pause(false),
            Action::Wake { node } => self.nodes[node].suspend(false),
            Action::Reconnect { node } => self.cut(node, false, false),
            Action::Hasten { node } => self.slow(node, Duration::ZERO, Duration::ZERO),
            Action::CalmLedger => {
                self.disturb_ledger(LedgerServing::Up(0));
            }
            Action::KillTwin => self.twin().kill(),
            Action::Calm => self.set_conditions(Conditions::default()),
            Action::Resume => self.resume()?,
            Action::RollBack { lag } => self.roll_back(lag)?,
            Action::RestartEmpty => self.restart_empty()?,
            Action::Heal => self.heal()?,
            Action::CheckConvergence => self.check_convergence()?,
        }
        Ok(())
    }

    fn draw(&mut self) {
        let names = self.nodes.len() - 1;
        let fault = match self.faults_left.checked_sub(1) {
            Some(left) => {
                self.faults_left = left;
                self.mix.draw(&mut self.chance, names)
            }
            None => return self.plan(Duration::from_secs(1), Action::Heal),
        };
        let pause = self.chance.duration(Duration::from_millis(200), Duration::from_secs(4));
        self.plan(pause, Action::Draw);
        let Some(fault) = fault else { return };
        let begun = self.begin(&fault);
        let now = self.clock.now();
        self.history.note(now, &[8, u64::from(begun)], || {
            format!("world   {}{fault:?}", if begun { "" } else { "(not now) " })
        });
    }

    /// Begins a fault, unless it is impossible at this time.
    fn begin(&mut self, fault: &Fault) -> bool {
        match *fault {
            Fault::Pause { node, lasts } => {
                self.on_node(node, |node| node.pause(true), lasts, Action::Continue { node })
            }
            Fault::Suspend { node, lasts } => {
                self.on_node(node, |node| node.suspend(true), lasts, Action::Wake { node })
            }
            Fault::Kill { node, down } => {
                let name = node;
                self.on_node(node, super::Node::kill, down, Action::Boot { node, name })
            }
            Fault::Cut { node, out, back, lasts } => {
                self.cut(node, out, back);
                self.plan(lasts, Action::Reconnect { node });
                true
            }
            Fault::Slow { node, out, back, lasts } => {
                self.slow(node, out, back);
                self.plan(lasts, Action::Hasten { node });
                true
            }
            Fault::LedgerAway { lasts } => self.on_ledger(LedgerServing::Away, lasts),
            Fault::LedgerHangs { lasts } => self.on_ledger(LedgerServing::Hanging, lasts),
            Fault::LedgerLoses { often, lasts } => self.on_ledger(LedgerServing::Up(often), lasts),
            Fault::StepWall { node, by_ms } => {
                self.nodes[node].step_wall(by_ms * 1_000_000);
                true
            }
            Fault::Twin { of, lasts } => self.start_twin(of, lasts),
            Fault::Storm { conditions, lasts } => {
                self.set_conditions(conditions);
                self.plan(lasts, Action::Calm);
                true
            }
            Fault::Freeze { lasts } => self.on_store(|world| world.server.freeze(), lasts, Action::Resume),
            Fault::Restart { down } => self.on_store(Self::stop, down, Action::Resume),
            Fault::RollBack { lag, down } => self.on_store(Self::stop, down, Action::RollBack { lag }),
            Fault::Wipe { down } => self.on_store(Self::stop, down, Action::RestartEmpty),
            Fault::ClockBack { by } => self.step_store_clock(-i64::try_from(micros(by)).unwrap_or(0)),
            Fault::LeapAhead { by } => self.step_store_clock(i64::try_from(micros(by)).unwrap_or(0)),
            Fault::JumpAhead { by } => {
                let up = self.server.serving() == Serving::Up;
                if up {
                    self.server.clock.jump(by);
                }
                up
            }
        }
    }

    fn on_node(&mut self, node: usize, begin: impl FnOnce(&mut super::Node), lasts: Duration, end: Action) -> bool {
        let free = self.nodes[node].is_free();
        if free {
            begin(&mut self.nodes[node]);
            self.plan(lasts, end);
        }
        free
    }

    fn on_store(&mut self, begin: impl FnOnce(&mut Self), lasts: Duration, end: Action) -> bool {
        let up = self.server.serving() == Serving::Up;
        if up {
            let (time, now) = (self.server.clock.time(), self.clock.now());
            self.checkers().for_each(|checker| checker.outages.begin(time, now));
            begin(self);
            self.plan(lasts, end);
        }
        up
    }

    fn step_store_clock(&mut self, by: i64) -> bool {
        let lowest = self.checkers().map(|checker| checker.lowest_clock()).max().unwrap_or(0);
        let lands_at = self.server.clock.time().micros().saturating_add_signed(by);
        let up = self.server.serving() == Serving::Up && lands_at >= lowest;
        if up {
            self.server.clock.step(by);
            self.checkers().for_each(|checker| checker.outages.forget());
        }
        if up && by < 0 {
            // An older copy would look current: losing data and the time that would show it are two faults, which is
            // more than is promised.
            self.copies.clear();
        }
        up
    }

    fn stop(&mut self) {
        self.network.refuse(true);
        for request in self.server.stop() {
            self.network.reset(request);
        }
    }

    fn resume(&mut self) -> Result<(), Violation> {
        self.network.refuse(false);
        let (time, now) = (self.server.clock.time(), self.clock.now());
        self.checkers().for_each(|checker| checker.outages.end(time, now));
        for request in self.server.resume() {
            self.serve(request)?;
        }
        Ok(())
    }

    /// A failover to a lagging replica, or a restart from an older copy.
    fn roll_back(&mut self, lag: Duration) -> Result<(), Violation> {
        let newest = self.copies.back().map_or_else(Default::default, |(.., at)| *at);
        let is_younger = |(.., at): &(usize, [Shadow; 2], At)| newest.since(*at) < lag;
        while self.copies.len() > 1 && self.copies.back().is_some_and(is_younger) {
            self.copies.pop_back();
        }
        if let Some((place, shadows, _)) = self.copies.back().cloned() {
            self.server.roll_back(place);
            for (checker, shadow) in self.checkers().zip(shadows) {
                checker.lost(shadow, false);
            }
            // Losing the newest numbers while the clock is behind them would be two faults; numbers are promised to
            // rise through either one.
            if self.server.broken_clock() {
                return self.resume();
            }
            let behind = self.highest_number().saturating_sub(self.server.clock.time().micros());
            // A jump of less than a gap has no other effect.
            self.server.clock.jump(Duration::from_micros(behind));
        }
        self.resume()
    }

    fn restart_empty(&mut self) -> Result<(), Violation> {
        self.server.wipe();
        self.copies.clear();
        // Tokens are covered for a clock that fell back by less than the maximum ttl.
        let most = micros(super::MAX_TTL) / 2;
        let behind = self.highest_number().saturating_sub(self.server.clock.time().micros());
        self.server
            .clock
            .step(i64::try_from(behind.saturating_sub(most)).unwrap_or(0));
        self.checkers()
            .for_each(|checker| checker.lost(Shadow::default(), true));
        self.resume()
    }

    fn copy(&mut self) {
        self.plan(COPY_EVERY, Action::Copy);
        // Skipped while no step has detected that the clock fell back.
        let time = Some(self.server.clock.time());
        let is_ahead = self.checkers().any(|checker| checker.shadow.last_step > time);
        if self.server.serving() != Serving::Up || is_ahead {
            return;
        }
        if self.copies.len() >= COPIES {
            self.copies.pop_front();
        }
        let shadows = [self.checker.shadow.clone(), self.providers.shadow.clone()];
        let copy = (self.server.log_len(), shadows, self.clock.now());
        self.copies.push_back(copy);
    }

    /// The records of both groups.
    fn checkers(&mut self) -> impl Iterator<Item = &mut Checker> {
        [&mut self.checker, &mut self.providers].into_iter()
    }

    fn highest_number(&self) -> u64 {
        self.checker.highest_number().max(self.providers.highest_number())
    }

    fn on_ledger(&mut self, serving: LedgerServing, lasts: Duration) -> bool {
        let begun = self.disturb_ledger(serving);
        if begun {
            self.plan(lasts, Action::CalmLedger);
        }
        begun
    }

    pub(super) fn boot(&mut self, node: usize, name: usize) {
        let habits = self.habits(name);
        let booted = self.nodes[node].boot(habits);
        if let Err(error) = booted {
            self.history
                .aside(self.clock.now(), &format!("a process could not be started: {error:#}"));
        }
    }

    fn cut(&mut self, node: usize, out: bool, back: bool) {
        self.network.cut(node, out, back);
        self.nodes[node].note_cut(out || back);
    }

    fn slow(&mut self, node: usize, out: Duration, back: Duration) {
        let arrived = self.network.slow(node, out, back);
        self.nodes[node].note_slow(out + back > Duration::ZERO, arrived);
    }

    pub(super) fn set_conditions(&mut self, conditions: Conditions) {
        self.network.set_conditions(conditions);
        self.storming = conditions != Conditions::default();
        self.storm = self.clock.now();
    }

    fn start_twin(&mut self, of: usize, lasts: Duration) -> bool {
        let free = !self.twin().is_up();
        if free {
            let node = self.nodes.len() - 1;
            self.boot(node, of);
            self.plan(lasts, Action::KillTwin);
        }
        free
    }

    pub(super) fn twin(&mut self) -> &mut super::Node {
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// Ends all faults.
    fn heal(&mut self) -> Result<(), Violation> {
        self.mix = "none".parse().unwrap_or_else(|_| Mix::all());
        self.timeline
            .retain(|_, action| matches!(action, Action::RollBack { .. } | Action::RestartEmpty | Action::Resume));
        let due: Vec<Action> = std::mem::take(&mut self.timeline).into_values().collect();
        for action in due {
            self.apply(action)?;
        }
        self.set_conditions(Conditions::default());
        self.disturb_ledger(LedgerServing::Up(0));
        self.twin().kill();
        for node in 0..self.nodes.len() - 1 {
            self.cut(node, false, false);
            self.slow(node, Duration::ZERO, Duration::ZERO);
            self.nodes[node].pause(false);
            self.nodes[node].suspend(false);
            if !self.nodes[node].is_up() {
                self.boot(node, node);
            }
            if let Some(view) = self.nodes[node].view() {
                view.calm_down();
            }
        }
        self.must_converge();
        Ok(())
    }
}
