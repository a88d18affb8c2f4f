//! A machine of the fleet: a clock, a process with the library in it, and the state of its faults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::loops::Loops;
use tenure::roster::SweepIntervals;
use tenure::sweeper::SweeperSettings;
use tenure::{ClientSettings, Clock, Rosters, RostersSettings, Tenure};
use tokio::runtime::Handle;

use crate::board::Board;
use crate::broken::BrokenRule;
use crate::chance::Chance;
use crate::ledger::{LedgerMachine, NodeLedger};
use crate::network::Network;
use crate::node_clock::NodeClock;
use crate::node_store::NodeStore;
use crate::process::Process;
use crate::program::{Program, ProgramConfig, RosterPart, View};
use crate::sink::Sink;
use crate::time::{At, Drift, WorldClock};

/// What every process starts with.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The world's clock.
    pub world: WorldClock,
    /// The network.
    pub network: Network,
    /// The group.
    pub group: String,
    /// The longest ttl.
    pub max_ttl: Duration,
    /// The storage that all programs write to.
    pub sink: Arc<Sink>,
    /// The ledger, and what operators were answered, if programs serve a roster.
    pub roster: Option<(Arc<LedgerMachine>, Arc<Board>)>,
    /// The number of providers of the roster.
    pub providers: u64,
    /// The broken rule.
    pub broken: Option<BrokenRule>,
}

/// A machine.
#[derive(Debug)]
pub struct Node {
    index: usize,
    start: NodeConfig,
    chance: Chance,
    drift: Drift,
    running: Option<Running>,
    paused: bool,
    suspended: bool,
    cut: bool,
    slow: bool,
    /// Whether a task was woken since the last run.
    pub woken: bool,
    /// The end of its last fault.
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

/// Starts the service of rosters of a process. Its sweeps run more often than usual, so that they matter in a run.
fn start_rosters(
    tenure: &Tenure,
    ledger: &Arc<LedgerMachine>,
    clock: &Arc<dyn Clock>,
    runtime: &Handle,
) -> tenure::Result<Rosters> {
    let settings = RostersSettings {
        sweeps: SweepIntervals {
            offline: Duration::from_secs(2),
            heartbeats: Duration::from_secs(5),
            reconcile: Duration::from_secs(8),
            expiry: Duration::from_secs(2),
        },
        ..RostersSettings::default()
    };
    let store = Arc::clone(tenure.store());
    let ledger = NodeLedger::new(Arc::clone(ledger), Arc::clone(clock));
    let loops = Loops::new(Arc::clone(clock), runtime.clone());
    Rosters::start(store, ledger, Arc::clone(clock), settings, &loops)
}

impl Node {
    /// Creates a machine without a process.
    #[must_use]
    pub fn new(index: usize, start: NodeConfig, mut chance: Chance) -> Self {
        // Up to 1 %: far more than a crystal drifts, and within Tenure's margin for drift.
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
            slow: false,
            woken: false,
            trouble: At::default(),
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    /// If the system refuses a runtime.
    pub fn boot(&mut self, habits: ProgramConfig) -> Result<()> {
        let NodeConfig {
            world,
            network,
            group,
            max_ttl,
            sink,
            roster,
            providers,
            broken,
        } = &self.start;
        let process = Process::new()?;
        let fork = |chance: &mut Chance| Chance::new(chance.draw(), 1);
        let forget_suspend = *broken == Some(BrokenRule::ForgetSuspend);
        let clock = NodeClock::new(world, self.drift, fork(&mut self.chance), forget_suspend);
        let forget_not_after = *broken == Some(BrokenRule::ForgetNotAfter);
        let local: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let store = NodeStore::new(self.index, network.clone(), Arc::clone(&local), forget_not_after);
        // One in five uses the store without sweeping it; the first always sweeps.
        let sweeps = !self.chance.happens(200) || self.index == 0;
        let sweeper = sweeps.then(SweeperSettings::default);
        let settings = ClientSettings {
            max_ttl: *max_ttl,
            sweeper,
            ..ClientSettings::default()
        };
        let tenure = Tenure::on_store(store, Arc::clone(&local), process.handle().clone(), &settings)?;
        let part = match roster {
            Some((ledger, board)) => {
                let rosters = start_rosters(&tenure, ledger, &local, process.handle())?;
                Some(RosterPart {
                    rosters,
                    board: Arc::clone(board),
                    node: self.index,
                    process: self.chance.draw(),
                    providers: *providers,
                })
            }
            None => None,
        };
        let view = Arc::<View>::default();
        let program = Program::new(
            tenure.clone(),
            local,
            habits,
            Arc::clone(&view),
            Arc::clone(sink),
            fork(&mut self.chance),
        )
        .with_roster(part);
        process.handle().spawn(program.run(group.clone()));
        self.running = Some(Running {
            clock,
            view,
            _tenure: tenure,
            process,
        });
        self.woken = true;
        Ok(())
    }

    /// Runs its process until all tasks wait, unless it is stopped. Returns whether it ran.
    pub fn run(&mut self) -> bool {
        if self.paused || self.suspended || !std::mem::take(&mut self.woken) {
            return false;
        }
        if let Some(running) = &self.running {
            running.process.run();
        }
        true
    }

    /// Kills its process without a leave.
    pub fn kill(&mut self) {
        self.note_trouble();
        self.running = None;
        self.paused = false;
        self.suspended = false;
    }

    /// Whether it has a process, running or stopped.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Whether its process runs without a fault, so that one can begin.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.is_up() && !self.paused && !self.suspended
    }

    /// Sends `SIGSTOP` or `SIGCONT`.
    pub fn pause(&mut self, paused: bool) {
        self.note_trouble();
        self.paused = paused;
        self.woken |= !paused;
    }

    /// Suspends or resumes the machine.
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
        self.woken |= !suspended;
    }

    /// Steps its wall clock.
    pub fn step_wall(&mut self, by_nanos: i64) {
        self.note_trouble();
        if let Some(running) = &self.running {
            running.clock.step_wall(by_nanos);
        }
    }

    /// Records that its link was cut or restored.
    pub fn note_cut(&mut self, cut: bool) {
        self.note_trouble();
        self.cut = cut;
    }

    /// Records that its messages became slow or fast again, and when those that wait on its connection have arrived.
    pub fn note_slow(&mut self, slow: bool, arrived: At) {
        self.note_trouble();
        self.trouble = self.trouble.max(arrived);
        self.slow = slow;
    }

    /// Records a fault that ends now.
    pub fn note_trouble(&mut self) {
        self.trouble = self.trouble.max(self.start.world.now());
    }

    /// The end of its last fault; now if one lasts.
    #[must_use]
    pub fn trouble(&self) -> At {
        if self.paused || self.suspended || self.cut || self.slow {
            self.start.world.now()
        } else {
            self.trouble
        }
    }

    /// The time of its earliest timer.
    #[must_use]
    pub fn next_wake(&self) -> Option<At> {
        self.running.as_ref().and_then(|running| running.clock.next_wake())
    }

    /// Expires the timers that are due.
    pub fn fire(&mut self) {
        if let Some(running) = &self.running {
            self.woken |= running.clock.fire();
        }
    }

    /// The observable state of its program.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.running.as_ref().map(|running| &*running.view)
    }
}
