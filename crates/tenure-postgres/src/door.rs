//! Connecting again after a failure: later each time, at a random moment, and one at a time.
//!
//! Without it every waiting call would knock at a server that is frozen or starting, and find it full of their knocks when
//! it is back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);

/// Whether it makes sense to connect now.
#[derive(Debug)]
pub(crate) struct Door {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The attempts that failed since the last that did not.
    failures: u32,
    /// No attempt before this.
    until: Mono,
    /// Somebody is trying.
    is_tried: bool,
    /// What the last failure was.
    last: Option<(ErrorKind, String)>,
}

/// One attempt; ends with an answer, or by being dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a>(Option<&'a Door>);

impl Door {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt, or says what the last one met and when to come again.
    pub(crate) fn enter(&self) -> Result<Attempt<'_>, Error> {
        let now = self.clock.mono();
        let mut state = self.state();
        if state.failures == 0 {
            return Ok(Attempt(Some(self)));
        }
        if !state.is_tried && now >= state.until {
            state.is_tried = true;
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
    /// It worked.
    pub(crate) fn succeeded(mut self) {
        if let Some(door) = self.0.take() {
            *door.state() = State::default();
        }
    }

    /// It did not.
    pub(crate) fn failed(mut self, error: &Error) {
        if let Some(door) = self.0.take() {
            let (now, chance) = (door.clock.mono(), door.clock.entropy());
            let mut state = door.state();
            state.failures = state.failures.saturating_add(1);
            let most = FIRST.saturating_mul(1 << state.failures.min(6)).min(LONGEST);
            // Full jitter, so that many processes do not come back together.
            let wait = most.mul_f64((chance >> 40) as f64 / f64::from(1u32 << 24));
            state.until = now + wait;
            state.is_tried = false;
            state.last = Some((error.kind(), error.chain()));
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(door) = self.0.take() {
            door.state().is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::ManualClock;

    #[test]
    fn after_a_failure_one_at_a_time_and_not_at_once() {
        let clock = Arc::new(ManualClock::new(0, 3));
        let door = Door::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let (one, two) = (door.enter().unwrap(), door.enter().unwrap());
        two.succeeded();
        one.failed(&Error::unavailable("nobody answers", Outcome::Unchanged));
        clock.advance(LONGEST);
        let probe = door.enter().unwrap();
        let refused = door.enter().unwrap_err();
        assert!(refused.is_unavailable() && refused.retry_after().is_some());
        assert!(refused.to_string().contains("nobody answers"));
        drop(probe);
        door.enter()
            .unwrap()
            .failed(&Error::new(ErrorKind::Denied, "wrong password"));
        if let Err(refused) = door.enter() {
            assert_eq!(refused.kind(), ErrorKind::Denied);
        }
        clock.advance(LONGEST);
        door.enter().unwrap().succeeded();
        let (_one, _two) = (door.enter().unwrap(), door.enter().unwrap());
    }
}
