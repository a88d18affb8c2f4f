//! Faults as they begin and end.

use std::time::Duration;

use tenure_core::time::micros;

use super::{Mix, World};
use crate::check::{Shadow, Violation};
use crate::fault::Fault;
use crate::network::Weather;
use crate::server::Serving;
use crate::time::At;

/// How often a copy of the store is made, and how many are kept.
const COPY_EVERY: Duration = Duration::from_millis(250);
const COPIES: usize = 64;

/// Something that is to happen at a time.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// The next fault.
    Draw,
    /// A copy of the store, to be rolled back to.
    Copy,
    /// A process is started, under the name of a machine.
    Boot { node: usize, name: usize },
    /// `SIGCONT`.
    Continue { node: usize },
    /// The lid is opened.
    Wake { node: usize },
    /// The link is whole again.
    Mend { node: usize },
    /// The second process of a name is killed.
    TwinGone,
    /// The weather is calm again.
    Calm,
    /// The store goes on, with its data.
    GoOn,
    /// The store is back, without the newest part of its data.
    Back { lag: Duration },
    /// The store is back, empty.
    BackEmpty,
    /// All faults are over.
    Heal,
    /// After that: whether all is well again.
    Look,
}

impl World {
    pub(super) fn change(&mut self, change: Change) -> Result<(), Violation> {
        if !matches!(change, Change::Copy | Change::Draw) {
            self.history
                .note(self.clock.now(), &[7], || format!("world   {change:?}"));
        }
        match change {
            Change::Draw => self.draw(),
            Change::Copy => self.copy(),
            Change::Boot { node, name } => self.boot(node, name),
            Change::Continue { node } => self.nodes[node].pause(false),
            Change::Wake { node } => self.nodes[node].suspend(false),
            Change::Mend { node } => self.cut(node, false, false),
            Change::TwinGone => self.twin().kill(),
            Change::Calm => self.set_weather(Weather::default()),
            Change::GoOn => self.go_on()?,
            Change::Back { lag } => self.back(lag)?,
            Change::BackEmpty => self.back_empty()?,
            Change::Heal => self.heal()?,
            Change::Look => self.look()?,
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
            None => return self.plan(Duration::from_secs(1), Change::Heal),
        };
        let pause = self.chance.duration(Duration::from_millis(200), Duration::from_secs(4));
        self.plan(pause, Change::Draw);
        let Some(fault) = fault else { return };
        let begun = self.begin(&fault);
        let now = self.clock.now();
        self.history.note(now, &[8, u64::from(begun)], || {
            format!("world   {}{fault:?}", if begun { "" } else { "(not now) " })
        });
    }

    /// Begins a fault, unless it cannot happen to what it is about at this time.
    fn begin(&mut self, fault: &Fault) -> bool {
        match *fault {
            Fault::Pause { node, lasts } => {
                self.on_node(node, |node| node.pause(true), lasts, Change::Continue { node })
            }
            Fault::Suspend { node, lasts } => {
                self.on_node(node, |node| node.suspend(true), lasts, Change::Wake { node })
            }
            Fault::Kill { node, down } => {
                let name = node;
                self.on_node(node, super::Node::kill, down, Change::Boot { node, name })
            }
            Fault::Cut { node, out, back, lasts } => {
                self.cut(node, out, back);
                self.plan(lasts, Change::Mend { node });
                true
            }
            Fault::StepWall { node, by_ms } => {
                self.nodes[node].step_wall(by_ms * 1_000_000);
                true
            }
            Fault::Twin { of, lasts } => self.start_twin(of, lasts),
            Fault::Storm { weather, lasts } => {
                self.set_weather(weather);
                self.plan(lasts, Change::Calm);
                true
            }
            Fault::Freeze { lasts } => self.on_store(|world| world.server.freeze(), lasts, Change::GoOn),
            Fault::Restart { down } => self.on_store(Self::stop, down, Change::GoOn),
            Fault::RollBack { lag, down } => self.on_store(Self::stop, down, Change::Back { lag }),
            Fault::Wipe { down } => self.on_store(Self::stop, down, Change::BackEmpty),
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

    fn on_node(&mut self, node: usize, begin: impl FnOnce(&mut super::Node), lasts: Duration, end: Change) -> bool {
        let free = self.nodes[node].is_free();
        if free {
            begin(&mut self.nodes[node]);
            self.plan(lasts, end);
        }
        free
    }

    fn on_store(&mut self, begin: impl FnOnce(&mut Self), lasts: Duration, end: Change) -> bool {
        let up = self.server.serving() == Serving::Up;
        if up {
            self.checker.outages.begin(self.server.clock.time(), self.clock.now());
            begin(self);
            self.plan(lasts, end);
        }
        up
    }

    fn step_store_clock(&mut self, by: i64) -> bool {
        let lowest = self.checker.lowest_clock();
        let lands_at = self.server.clock.time().micros().saturating_add_signed(by);
        let up = self.server.serving() == Serving::Up && lands_at >= lowest;
        if up {
            self.server.clock.step(by);
            self.checker.outages.forget();
        }
        if up && by < 0 {
            // A copy from before that would look as if it were from now: losing data, and the time that would tell of
            // it, are two faults in one and more than is promised.
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

    fn go_on(&mut self) -> Result<(), Violation> {
        self.network.refuse(false);
        self.checker.outages.end(self.server.clock.time(), self.clock.now());
        for request in self.server.go_on() {
            self.serve(request)?;
        }
        Ok(())
    }

    /// A failover to a replica that lagged, or a restart from an older copy.
    fn back(&mut self, lag: Duration) -> Result<(), Violation> {
        let newest = self.copies.back().map_or_else(Default::default, |(.., at)| *at);
        let is_younger = |(.., at): &(usize, Shadow, At)| newest.since(*at) < lag;
        while self.copies.len() > 1 && self.copies.back().is_some_and(is_younger) {
            self.copies.pop_back();
        }
        if let Some((place, shadow, _)) = self.copies.back().cloned() {
            self.server.roll_back(place);
            self.checker.lost(shadow, false);
            // Losing the newest numbers while the clock stands behind them would be two faults in one; what is promised
            // is that numbers rise through either.
            if self.server.broken_clock() {
                return self.go_on();
            }
            let behind = self
                .checker
                .highest_number()
                .saturating_sub(self.server.clock.time().micros());
            // What is less than a gap shows nowhere else.
            self.server.clock.jump(Duration::from_micros(behind));
        }
        self.go_on()
    }

    fn back_empty(&mut self) -> Result<(), Violation> {
        self.server.wipe();
        self.copies.clear();
        // A clock that fell back by less than the longest ttl is within what is promised for tokens.
        let most = micros(super::MAX_TTL) / 2;
        let behind = self
            .checker
            .highest_number()
            .saturating_sub(self.server.clock.time().micros());
        self.server
            .clock
            .step(i64::try_from(behind.saturating_sub(most)).unwrap_or(0));
        self.checker.lost(Shadow::default(), true);
        self.go_on()
    }

    fn copy(&mut self) {
        self.plan(COPY_EVERY, Change::Copy);
        // Not while a clock that fell back has not been noticed yet.
        let is_ahead = self.checker.shadow.last_step > Some(self.server.clock.time());
        if self.server.serving() != Serving::Up || is_ahead {
            return;
        }
        if self.copies.len() >= COPIES {
            self.copies.pop_front();
        }
        let (place, shadow) = (self.server.place(), self.checker.shadow.clone());
        self.copies.push_back((place, shadow, self.clock.now()));
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

    pub(super) fn set_weather(&mut self, weather: Weather) {
        self.network.set_weather(weather);
        self.storming = weather != Weather::default();
        self.storm = self.clock.now();
    }

    fn start_twin(&mut self, of: usize, lasts: Duration) -> bool {
        let free = !self.twin().is_up();
        if free {
            let node = self.nodes.len() - 1;
            self.boot(node, of);
            self.plan(lasts, Change::TwinGone);
        }
        free
    }

    pub(super) fn twin(&mut self) -> &mut super::Node {
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// Everything that is wrong is put right, at once.
    fn heal(&mut self) -> Result<(), Violation> {
        self.mix = "none".parse().unwrap_or_else(|_| Mix::all());
        self.timeline
            .retain(|_, change| matches!(change, Change::Back { .. } | Change::BackEmpty | Change::GoOn));
        let due: Vec<Change> = std::mem::take(&mut self.timeline).into_values().collect();
        for change in due {
            self.change(change)?;
        }
        self.set_weather(Weather::default());
        self.twin().kill();
        for node in 0..self.nodes.len() - 1 {
            self.cut(node, false, false);
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
