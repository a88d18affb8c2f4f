//! Connect back-off: after a failure, attempts are delayed exponentially with jitter and run one at a time.
//!
//! Without it every waiting call would connect to a server that is frozen or starting, and exhaust its connections when
//! it returns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);

/// Decides whether to connect now.
#[derive(Debug)]
pub(crate) struct ConnectBackoff {
    clock: Arc<dyn Clock>,
    state: Mutex<BackoffState>,
}

#[derive(Debug, Default)]
struct BackoffState {
    /// Consecutive failed attempts.
    failures: u32,
    /// No attempt before this time.
    until: Mono,
    /// An attempt is running.
    attempting: bool,
    /// The kind and message of the last failure.
    last: Option<(ErrorKind, String)>,
}

/// One attempt. It ends with a result, or without one if dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a>(Option<&'a ConnectBackoff>);

impl ConnectBackoff {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, BackoffState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt, or fails with the last error and a retry time.
    pub(crate) fn begin(&self) -> Result<Attempt<'_>, Error> {
        let now = self.clock.mono();
        let mut state = self.state();
        if state.failures == 0 {
            return Ok(Attempt(Some(self)));
        }
        if !state.attempting && now >= state.until {
            state.attempting = true;
            return Ok(Attempt(Some(self)));
        }
        let wait = state.until.since(now).max(Duration::from_millis(20));
        Err(match &state.last {
            Some((kind, message)) if *kind != ErrorKind::Unavailable => Error::new(*kind, message.clone()),
            last => {
                let message = last
                    .as_ref()
                    .map_or("the ledger could not be reached", |(_, message)| message);
                Error::unavailable(message.to_owned(), Outcome::Unchanged)
            }
        }
        .with_retry_after(wait))
    }
}

impl Attempt<'_> {
    /// Records a success.
    pub(crate) fn succeeded(mut self) {
        if let Some(backoff) = self.0.take() {
            *backoff.state() = BackoffState::default();
        }
    }

    /// Records a failure.
    pub(crate) fn failed(mut self, error: &Error) {
        if let Some(backoff) = self.0.take() {
            let (now, chance) = (backoff.clock.mono(), backoff.clock.entropy());
            let mut state = backoff.state();
            state.failures = state.failures.saturating_add(1);
            let most = FIRST.saturating_mul(1 << state.failures.min(6)).min(LONGEST);
            // Full jitter, so that many processes do not reconnect in step.
            let wait = most.mul_f64((chance >> 40) as f64 / f64::from(1u32 << 24));
            state.until = now + wait;
            state.attempting = false;
            state.last = Some((error.kind(), error.chain()));
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(backoff) = self.0.take() {
            backoff.state().attempting = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::ManualClock;

    #[test]
    fn after_a_failure_attempts_wait_and_run_one_at_a_time() {
        let clock = Arc::new(ManualClock::new(0, 3));
        let backoff = ConnectBackoff::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let (one, two) = (backoff.begin().unwrap(), backoff.begin().unwrap());
        two.succeeded();
        one.failed(&Error::unavailable("connection refused", Outcome::Unchanged));
        clock.advance(LONGEST);
        let probe = backoff.begin().unwrap();
        let refused = backoff.begin().unwrap_err();
        assert!(refused.is_unavailable() && refused.retry_after().is_some());
        assert!(refused.to_string().contains("connection refused"));
        drop(probe);
        backoff
            .begin()
            .unwrap()
            .failed(&Error::new(ErrorKind::Denied, "wrong password"));
        if let Err(refused) = backoff.begin() {
            assert_eq!(refused.kind(), ErrorKind::Denied);
        }
        clock.advance(LONGEST);
        backoff.begin().unwrap().succeeded();
        let (_one, _two) = (backoff.begin().unwrap(), backoff.begin().unwrap());
    }
}
