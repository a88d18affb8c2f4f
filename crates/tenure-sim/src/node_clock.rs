//! The clocks of one machine as its processes read them: they drift, are stepped, and stop during a suspend.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Clock, Mono};
use tenure_core::clock::{Sleep, TrustTime};

use crate::chance::Chance;
use crate::time::{At, Drift, WorldClock, nanos};

/// 2026-01-01T00:00:00Z, the start of every simulation.
pub const EPOCH_MICROS: u64 = 1_767_225_600_000_000;

/// The wall clock at the start of a process. Only its difference to boot time matters.
const REAL: Duration = Duration::from_secs(1_000_000_000);

/// The clock of one process. It computes trust time with the code of the system clock.
#[derive(Debug)]
pub struct NodeClock {
    world: WorldClock,
    drift: Drift,
    /// Broken rule: trust time stops during a suspend, as `CLOCK_MONOTONIC` does.
    forget_suspend: bool,
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    born: At,
    /// The total suspend time, up to the last resume.
    asleep: u64,
    asleep_since: Option<At>,
    /// The sum of the wall clock's steps since the process began.
    stepped: i64,
    trust: TrustTime,
    sleepers: BTreeMap<(u64, u64), Waker>,
    next_sleeper: u64,
    /// The earliest sleeper's time on this clock, and the matching world time.
    next_due: (u64, u64),
    chance: Chance,
}

impl NodeClock {
    /// Creates the clock of a process that begins now.
    #[must_use]
    pub fn new(world: &WorldClock, drift: Drift, chance: Chance, forget_suspend: bool) -> Arc<Self> {
        let state = ClockState {
            born: world.now(),
            asleep: 0,
            asleep_since: None,
            stepped: 0,
            trust: TrustTime::new(Duration::ZERO, REAL),
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
            next_due: (0, 0),
            chance,
        };
        Arc::new(Self {
            world: world.clone(),
            drift,
            forget_suspend,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Suspends the machine: timers stop, boot time and wall time continue.
    pub fn suspend(&self) {
        let now = self.world.now();
        self.state().asleep_since.get_or_insert(now);
    }

    /// Resumes the machine.
    pub fn resume(&self) {
        let now = self.world.now();
        let mut state = self.state();
        if let Some(since) = state.asleep_since.take() {
            state.asleep += nanos(now.since(since));
        }
    }

    /// Steps the wall clock, as an operator or NTP does.
    pub fn step_wall(&self, by_nanos: i64) {
        let mut state = self.state();
        state.stepped = state.stepped.saturating_add(by_nanos);
    }

    /// The time at which the earliest sleeper is due, unless the machine is suspended.
    #[must_use]
    pub fn next_wake(&self) -> Option<At> {
        let mut state = self.state();
        if state.asleep_since.is_some() {
            return None;
        }
        let ((until, _), _) = state.sleepers.first_key_value()?;
        let until = *until;
        if state.next_due.0 != until {
            state.next_due = (until, self.drift.world(until));
        }
        Some(At(state.born.0 + state.asleep + state.next_due.1))
    }

    /// Wakes the sleepers that are due. Returns whether there were any.
    pub fn fire(&self) -> bool {
        let due = {
            let mut state = self.state();
            let run = self.run_time(&state);
            let later = state.sleepers.split_off(&(run + 1, 0));
            std::mem::replace(&mut state.sleepers, later)
        };
        let any = !due.is_empty();
        due.into_values().for_each(Waker::wake);
        any
    }

    /// The time for which the machine ran.
    fn run_time(&self, state: &ClockState) -> u64 {
        let until = state.asleep_since.unwrap_or_else(|| self.world.now());
        self.drift
            .local(until.0.saturating_sub(state.born.0).saturating_sub(state.asleep))
    }

    fn boot_time(&self, state: &ClockState) -> u64 {
        self.drift.local(self.world.now().0.saturating_sub(state.born.0))
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for NodeClock {
    fn mono(&self) -> Mono {
        let mut state = self.state();
        if self.forget_suspend {
            return Mono::from_origin(Duration::from_nanos(self.run_time(&state)));
        }
        let boot = self.boot_time(&state);
        // Far enough from zero that no step makes it negative.
        let real = (boot + nanos(REAL)).saturating_add_signed(state.stepped);
        let (boot, real) = (Duration::from_nanos(boot), Duration::from_nanos(real));
        Mono::from_origin(state.trust.read(boot, real))
    }

    fn wall_micros(&self) -> u64 {
        let state = self.state();
        let since = state.born.0 + self.boot_time(&state);
        EPOCH_MICROS.saturating_add_signed(i64::try_from(since / 1_000).unwrap_or(i64::MAX) + state.stepped / 1_000)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let mut state = self.state();
        let until = self.run_time(&state).saturating_add(nanos(duration));
        state.next_sleeper += 1;
        Box::pin(Sleeper {
            entry: (until, state.next_sleeper),
            state: Arc::clone(&self.state),
            slept: duration.is_zero(),
            registered: false,
        })
    }

    fn entropy(&self) -> u64 {
        self.state().chance.draw()
    }
}

/// One sleep. It ends when the clock removes it from the list, and removes itself when dropped.
struct Sleeper {
    entry: (u64, u64),
    state: Arc<Mutex<ClockState>>,
    slept: bool,
    registered: bool,
}

impl Future for Sleeper {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.slept {
            return Poll::Ready(());
        }
        let this = &mut *self;
        let mut state = this.state.lock().unwrap_or_else(PoisonError::into_inner);
        if this.registered && !state.sleepers.contains_key(&this.entry) {
            drop(state);
            this.slept = true;
            return Poll::Ready(());
        }
        state.sleepers.insert(this.entry, context.waker().clone());
        drop(state);
        this.registered = true;
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if self.registered && !self.slept {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.sleepers.remove(&self.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(forget_suspend: bool) -> (WorldClock, Arc<NodeClock>) {
        let world = WorldClock::default();
        let clock = NodeClock::new(&world, Drift(10_000), Chance::new(1, 1), forget_suspend);
        (world, clock)
    }

    fn trust(clock: &NodeClock) -> Duration {
        clock.mono().since_origin()
    }

    #[test]
    fn trust_time_drifts_counts_suspend_and_never_falls() {
        let (world, clock) = clock(false);
        world.set(At(1_000_000_000));
        assert_eq!(trust(&clock), Duration::from_millis(1_010));
        clock.suspend();
        world.set(At(2_000_000_000));
        assert_eq!(trust(&clock), Duration::from_millis(2_020));
        clock.resume();
        clock.step_wall(5_000_000_000);
        assert_eq!(trust(&clock), Duration::from_millis(7_020));
        clock.step_wall(-9_000_000_000);
        assert_eq!(trust(&clock), Duration::from_millis(7_020));
        world.set(At(3_000_000_000));
        assert_eq!(trust(&clock), Duration::from_millis(8_030));
    }

    #[test]
    fn the_broken_clock_stops_during_a_suspend() {
        let (world, clock) = clock(true);
        clock.suspend();
        world.set(At(9_000_000_000));
        assert_eq!(trust(&clock), Duration::ZERO);
    }

    #[test]
    fn a_sleep_follows_its_own_clock_and_stops_in_suspend() {
        let (world, clock) = clock(false);
        let mut sleep = clock.sleep(Duration::from_millis(1_010));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_wake(), Some(At(1_000_000_000)));
        clock.suspend();
        assert_eq!(clock.next_wake(), None);
        world.set(At(3_000_000_000));
        assert!(!clock.fire());
        clock.resume();
        assert_eq!(clock.next_wake(), Some(At(4_000_000_000)));
        world.set(At(4_000_000_000));
        assert!(clock.fire());
        assert!(sleep.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_dropped_sleep_wakes_no_task() {
        let (_world, clock) = clock(false);
        let mut sleep = clock.sleep(Duration::from_secs(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        drop(sleep);
        assert_eq!(clock.next_wake(), None);
    }
}
