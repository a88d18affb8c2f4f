//! The ledger of the rosters: the reference ledger on a machine of its own, and the faults of that machine.
//!
//! It is not behind the simulated [`network`](crate::network), which carries the calls of a store: a call of the ledger
//! takes a moment each way, and the machine refuses it, hangs, or loses its answer. Its clock drifts and is not stepped.

mod record;
mod remote;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::{Result, RosterName, SettingsPatch, TenureId};
use tenure_core::ledger::{EndedBatch, EndedTenure, Ledger, MemoryLedger, Provider};
use tenure_core::store::PageRequest;

use crate::broken::BrokenRule;
use crate::chance::Chance;
use crate::check::Violation;
use crate::server::poll_once;
use crate::store_clock::StoreMachineClock;
use crate::time::{At, Drift, WorldClock};

pub use record::LedgerRecord;
pub use remote::NodeLedger;

/// Whether the ledger's machine serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerServing {
    /// It answers; this often, per mille, its answer is lost.
    Up(u64),
    /// It refuses connections.
    Away,
    /// It takes connections and does not answer in time. Half of the calls are carried out.
    Hanging,
}

/// The ledger's machine.
#[derive(Debug)]
pub struct LedgerMachine {
    world: WorldClock,
    memory: Arc<MemoryLedger>,
    broken: Option<BrokenRule>,
    state: Mutex<LedgerState>,
}

#[derive(Debug)]
struct LedgerState {
    serving: LedgerServing,
    chance: Chance,
    record: LedgerRecord,
    /// Ended tenures whose call was given up, and when it is carried out all the same.
    late: Vec<(At, RosterName, Vec<EndedTenure>)>,
    /// When its last fault ended.
    trouble: At,
}

impl LedgerState {
    /// Carries out what was given up and is due, as a transaction does that waited for a lock.
    fn catch_up(&mut self, machine: &LedgerMachine) {
        let now = machine.world.now();
        let due: Vec<_> = self.late.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, roster, ended) in due {
            let rows = machine.follow(&roster, &ended);
            self.record.ended(&ended, &rows);
        }
    }
}

impl LedgerMachine {
    /// Creates a ledger with the settings of one roster.
    #[must_use]
    pub fn new(world: &WorldClock, mut chance: Chance, roster: &RosterName, broken: Option<BrokenRule>) -> Arc<Self> {
        let drift = Drift(i64::try_from(chance.below(20_001)).unwrap_or(0) - 10_000);
        let clock = StoreMachineClock::new(world, drift);
        let memory = MemoryLedger::new(clock);
        let patch = SettingsPatch {
            stale_after: Some(crate::world::STALE_AFTER),
            ..SettingsPatch::default()
        };
        drop(poll_once(memory.set_settings(roster, &patch)));
        let state = LedgerState {
            serving: LedgerServing::Up(0),
            chance,
            record: LedgerRecord::default(),
            late: Vec::new(),
            trouble: At::default(),
        };
        Arc::new(Self {
            world: world.clone(),
            memory,
            broken,
            state: Mutex::new(state),
        })
    }

    /// Applies ended tenures.
    fn follow(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch> {
        match self.broken {
            Some(BrokenRule::AutoOfflineAnyTenure) => {
                let ended = remote::of_the_same(&self.memory, roster, ended);
                poll_once(self.memory.offline_ended(roster, &ended))
            }
            _ => poll_once(self.memory.offline_ended(roster, ended)),
        }
    }

    /// Sets whether it serves.
    pub fn set_serving(&self, serving: LedgerServing) {
        let mut state = self.state();
        state.serving = serving;
        state.trouble = self.world.now();
    }

    /// The end of its last fault; now if one lasts.
    #[must_use]
    pub fn trouble(&self) -> At {
        let state = self.state();
        match state.serving {
            LedgerServing::Up(0) => state.trouble,
            _ => self.world.now(),
        }
    }

    /// The first violation of its checks.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.state().record.violation()
    }

    /// The ended tenures that it has applied since the last call.
    #[must_use]
    pub fn take_followed(&self) -> Vec<TenureId> {
        self.state().record.take_followed()
    }

    /// The rows of all providers.
    #[must_use]
    pub fn rows(&self, roster: &RosterName) -> Vec<Provider> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        poll_once(self.memory.providers(roster, None, &page)).map_or_else(|_| Vec::new(), |page| page.items)
    }

    /// The number of rows that the mirror may not have.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        poll_once(self.memory.dirty_counts()).map_or(0, |counts| counts.into_values().sum())
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
