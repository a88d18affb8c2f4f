//! One machine of the fleet: a clock, a process with the library in it, and what has happened to them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::sweeper::SweeperSettings;
use tenure::{ClientSettings, Clock, Tenure};

use crate::broken::Broken;
use crate::chance::Chance;
use crate::network::Network;
use crate::node_clock::NodeClock;
use crate::node_store::NodeStore;
use crate::process::Process;
use crate::program::{Habits, Program, View};
use crate::sink::Sink;
use crate::time::{At, Drift, WorldClock};

/// What every process is started with.
#[derive(Debug, Clone)]
pub struct Start {
    /// The world's clock.
    pub world: WorldClock,
    /// The network.
    pub network: Network,
    /// The group.
    pub group: String,
    /// The longest ttl.
    pub max_ttl: Duration,
    /// What everybody writes to.
    pub sink: Arc<Sink>,
    /// What is broken on purpose.
    pub broken: Option<Broken>,
}

/// A machine.
#[derive(Debug)]
pub struct Node {
    index: usize,
    start: Start,
    chance: Chance,
    drift: Drift,
    running: Option<Running>,
    paused: bool,
    suspended: bool,
    cut: bool,
    /// Whether something woke a task of it since it ran last.
    pub stirred: bool,
    /// When it was last in trouble of its own.
    trouble: At,
}

#[derive(Debug)]
struct Running {
    clock: Arc<NodeClock>,
    view: Arc<View>,
    /// Held so that its janitor runs, and dropped before the process.
    _tenure: Tenure,
    process: Process,
}

impl Node {
    /// A machine on which nothing runs.
    #[must_use]
    pub fn new(index: usize, start: Start, mut chance: Chance) -> Self {
        // Up to one percent: far more than a crystal drifts, and within the margin that Tenure keeps for it.
        let drift = Drift(i64::try_from(chance.below(20_001)).unwrap_or(0) - 10_000);
        Self {
            index,
            start,
            chance,
            drift,
            running: None,
            paused: false,
            suspended: false,
            cut: false,
            stirred: false,
            trouble: At::default(),
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    /// When the system refuses a runtime.
    pub fn boot(&mut self, habits: Habits) -> Result<()> {
        let Start {
            world,
            network,
            group,
            max_ttl,
            sink,
            broken,
        } = &self.start;
        let process = Process::new()?;
        let fork = |chance: &mut Chance| Chance::new(chance.draw(), 1);
        let forget_suspend = *broken == Some(Broken::ForgetSuspend);
        let clock = NodeClock::new(world, self.drift, fork(&mut self.chance), forget_suspend);
        let forget_not_after = *broken == Some(Broken::ForgetNotAfter);
        let local: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let store = NodeStore::new(self.index, network.clone(), Arc::clone(&local), forget_not_after);
        // One in five uses the store without sweeping it; the first always does.
        let sweeps = !self.chance.happens(200) || self.index == 0;
        let sweeper = sweeps.then(SweeperSettings::default);
        let settings = ClientSettings {
            max_ttl: *max_ttl,
            sweeper,
            ..ClientSettings::default()
        };
        let tenure = Tenure::on_store(store, Arc::clone(&local), process.handle().clone(), &settings)?;
        let view = Arc::<View>::default();
        let program = Program::new(
            tenure.clone(),
            local,
            habits,
            Arc::clone(&view),
            Arc::clone(sink),
            fork(&mut self.chance),
        );
        process.handle().spawn(program.run(group.clone()));
        self.running = Some(Running {
            clock,
            view,
            _tenure: tenure,
            process,
        });
        self.stirred = true;
        Ok(())
    }

    /// Lets its process run as far as it gets, unless it is stopped. Whether it ran.
    pub fn run(&mut self) -> bool {
        if self.paused || self.suspended || !std::mem::take(&mut self.stirred) {
            return false;
        }
        if let Some(running) = &self.running {
            running.process.run();
        }
        true
    }

    /// Kills its process: no goodbye.
    pub fn kill(&mut self) {
        self.note_trouble();
        self.running = None;
        self.paused = false;
        self.suspended = false;
    }

    /// Whether a process runs, or would if it were let.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a process runs undisturbed, so that something can happen to it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.is_up() && !self.paused && !self.suspended
    }

    /// `SIGSTOP`, or `SIGCONT`.
    pub fn pause(&mut self, paused: bool) {
        self.note_trouble();
        self.paused = paused;
        self.stirred |= !paused;
    }

    /// The lid is closed, or opened.
    pub fn suspend(&mut self, suspended: bool) {
        self.note_trouble();
        self.suspended = suspended;
        if let Some(running) = &self.running {
            if suspended {
                running.clock.suspend();
            } else {
                running.clock.resume();
            }
        }
        self.stirred |= !suspended;
    }

    /// Its wall clock is stepped.
    pub fn step_wall(&mut self, by_nanos: i64) {
        self.note_trouble();
        if let Some(running) = &self.running {
            running.clock.step_wall(by_nanos);
        }
    }

    /// Its link is cut, or mended.
    pub fn note_cut(&mut self, cut: bool) {
        self.note_trouble();
        self.cut = cut;
    }

    /// Something has just happened to it.
    pub fn note_trouble(&mut self) {
        self.trouble = self.start.world.now();
    }

    /// When it was last in trouble of its own; now, if it still is.
    #[must_use]
    pub fn trouble(&self) -> At {
        if self.paused || self.suspended || self.cut {
            self.start.world.now()
        } else {
            self.trouble
        }
    }

    /// When its earliest timer is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<At> {
        self.running.as_ref().and_then(|running| running.clock.next_wake())
    }

    /// Lets its timers expire.
    pub fn fire(&mut self) {
        if let Some(running) = &self.running {
            self.stirred |= running.clock.fire();
        }
    }

    /// What its program can be asked.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.running.as_ref().map(|running| &*running.view)
    }
}
