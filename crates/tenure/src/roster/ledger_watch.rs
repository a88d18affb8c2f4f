//! Whether the ledger answers, by the poll of this process: one gauge, and one log line per outage and recovery for all
//! rosters.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::store::Health;

use crate::meters;

/// The ledger counts as down after this many failures in a row. A single one may be a slow answer.
const FAILURES: u32 = 2;

impl PollHistory {
    /// Logs when a ledger that answers reads begins or ceases to refuse writes.
    fn note_writes(&mut self, health: &Health, place: &str) {
        let refused = match health {
            Health::Up => None,
            Health::Down { reason } => Some(reason),
        };
        match (self.takes_no_writes, refused) {
            (false, Some(error)) => {
                tracing::warn!(ledger = place, error, "the ledger answers reads and takes no writes");
            }
            (true, None) => tracing::info!(ledger = place, "the ledger takes writes again"),
            _ => {}
        }
        self.takes_no_writes = refused.is_some();
    }
}

/// The availability of the ledger, shared by the poll and the sweeps.
#[derive(Debug, Default)]
pub(super) struct LedgerWatch(Mutex<PollHistory>);

#[derive(Debug, Default)]
struct PollHistory {
    failures: u32,
    /// Since when it is down, and why.
    away: Option<(Mono, String)>,
    takes_no_writes: bool,
}

impl LedgerWatch {
    /// Why it is down; `None` while it answers.
    pub(super) fn why_away(&self) -> Option<String> {
        self.history().away.as_ref().map(|(_, why)| why.clone())
    }

    /// Records the result of a poll, and the ledger's own health after it.
    pub(super) fn polled<T>(&self, answer: &Result<T>, health: &Health, place: &str, now: Mono) {
        let mut history = self.history();
        match answer {
            Ok(_) => {
                history.failures = 0;
                history.note_writes(health, place);
                meters::ledger_up(!history.takes_no_writes);
                if let Some((since, _)) = history.away.take() {
                    let away_for: Duration = now.since(since);
                    tracing::info!(ledger = place, ?away_for, "the ledger answers again");
                }
            }
            Err(error) => {
                history.failures = history.failures.saturating_add(1);
                if history.failures < FAILURES {
                    return;
                }
                meters::ledger_up(false);
                if history.away.is_none() {
                    tracing::warn!(
                        ledger = place,
                        error = error.chain(),
                        "the ledger does not answer: writes to rosters fail until it does; mirrors still answer reads"
                    );
                    history.away = Some((now, error.chain()));
                }
            }
        }
    }

    fn history(&self) -> MutexGuard<'_, PollHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
