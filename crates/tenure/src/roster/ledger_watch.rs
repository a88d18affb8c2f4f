//! Whether the ledger answers, as the poll of this process sees it: one gauge, one log line when it goes away and one when it
//! is back, however many rosters there are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::Result;

use crate::meters;

/// After so many failures in a row it is away. One alone is a slow answer.
const FAILURES: u32 = 2;

/// What is known of it. Shared by the poll and those who only log.
#[derive(Debug, Default)]
pub(super) struct LedgerWatch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    failures: u32,
    /// Since when it is away, and why.
    away: Option<(Mono, String)>,
}

impl LedgerWatch {
    /// Why it is away; `None` while it answers.
    pub(super) fn why_away(&self) -> Option<String> {
        self.seen().away.as_ref().map(|(_, why)| why.clone())
    }

    /// It was polled.
    pub(super) fn polled<T>(&self, answer: &Result<T>, place: &str, now: Mono) {
        let mut seen = self.seen();
        match answer {
            Ok(_) => {
                seen.failures = 0;
                meters::ledger_up(true);
                if let Some((since, _)) = seen.away.take() {
                    let away_for: Duration = now.since(since);
                    tracing::info!(ledger = place, ?away_for, "the ledger answers again");
                }
            }
            Err(error) => {
                seen.failures = seen.failures.saturating_add(1);
                if seen.failures < FAILURES {
                    return;
                }
                meters::ledger_up(false);
                if seen.away.is_none() {
                    tracing::warn!(
                        ledger = place,
                        error = error.chain(),
                        "the ledger does not answer: writes to rosters are refused until it does; mirrors go on answering"
                    );
                    seen.away = Some((now, error.chain()));
                }
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
