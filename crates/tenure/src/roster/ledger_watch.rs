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

#[cfg(test)]
mod tests {
    use tenure_core::error::{Error, Outcome};

    use super::*;
    use crate::testing::Telemetry;

    #[test]
    fn a_ledger_that_takes_no_writes_shows_once() {
        let telemetry = Telemetry::default();
        let _guards = telemetry.listen();
        let watch = LedgerWatch::default();
        let refused = Health::Down {
            reason: "writes fail: the disk is full".to_owned(),
        };
        let polled = |health: &Health| watch.polled(&Ok(()), health, "postgres://db", Mono::default());
        polled(&Health::Up);
        assert!((telemetry.gauge(meters::LEDGER_UP) - 1.0).abs() < 0.1);
        for _ in 0..3 {
            polled(&refused);
            assert!(telemetry.gauge(meters::LEDGER_UP) < 0.1);
        }
        assert_eq!(telemetry.lines("answers reads and takes no writes"), 1);
        assert_eq!(watch.why_away(), None, "its reads are served");
        polled(&Health::Up);
        assert_eq!(telemetry.lines("takes writes again"), 1);
        assert!((telemetry.gauge(meters::LEDGER_UP) - 1.0).abs() < 0.1);
    }

    #[test]
    fn one_slow_answer_is_no_outage() {
        let telemetry = Telemetry::default();
        let _guards = telemetry.listen();
        let watch = LedgerWatch::default();
        let failed = || Err::<(), _>(Error::unavailable("it is slow", Outcome::Unchanged));
        watch.polled(&failed(), &Health::Up, "postgres://db", Mono::default());
        assert_eq!(watch.why_away(), None);
        watch.polled(&failed(), &Health::Up, "postgres://db", Mono::default());
        assert!(watch.why_away().is_some());
        assert_eq!(telemetry.lines("the ledger does not answer"), 1);
    }
}
