//! Time-outs of calls, and the outcome of a call without a reply.
//!
//! A call has one time-out, in the layer that knows the outcome: a networked store knows whether the call was sent, and
//! until when it may take effect. Two equal time-outs race, and if the outer one wins, the connection below never
//! counts the silence. So a caller adds its own time-out only if it is shorter than the store's, or if the store has
//! none ([`Timeout::step`]).

use std::fmt::Display;
use std::time::Duration;

use crate::clock::{Clock, within};
use crate::error::{Error, Outcome, Result};
use crate::store::Store;
use crate::sweep::BATCH;
use crate::time::show_duration;

/// The time-out of a call, and the outcome if no reply arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout {
    within: Duration,
    unanswered: Outcome,
}

impl Timeout {
    /// For a mutating call: without a reply, it may have been applied, or may still be until its not-after.
    #[must_use]
    pub const fn change(within: Duration) -> Self {
        let unanswered = Outcome::Unknown;
        Self { within, unanswered }
    }

    /// For a read, which changes nothing.
    #[must_use]
    pub const fn read(within: Duration) -> Self {
        let unanswered = Outcome::Unchanged;
        Self { within, unanswered }
    }

    /// Waits for a call to `who`, and drops it at the time-out.
    ///
    /// # Errors
    /// Those of the call; [`Timeout::no_answer`] at the time-out.
    pub async fn call<T>(self, clock: &dyn Clock, who: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = within(clock, self.within, call).await;
        answer.unwrap_or_else(|| Err(self.no_answer(who)))
    }

    /// Waits for a step of a store, with the store's own time-out if that is not longer.
    ///
    /// # Errors
    /// Those of the step; [`Timeout::no_answer`] at the time-out.
    pub async fn step<T>(
        self,
        clock: &dyn Clock,
        store: &dyn Store,
        step: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match store.answers_within() {
            Some(own) if own <= self.within => step.await,
            _ => self.call(clock, "the store", step).await,
        }
    }

    /// Waits for a call with a list. The time-out bounds the whole call, also if the store needs several steps.
    ///
    /// # Errors
    /// As [`Timeout::step`].
    pub async fn steps<T>(
        self,
        clock: &dyn Clock,
        store: &dyn Store,
        items: usize,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match items <= BATCH as usize {
            true => self.step(clock, store, call).await,
            false => self.call(clock, "the store", call).await,
        }
    }

    /// The error of a call that `who` did not answer in time.
    #[must_use]
    pub fn no_answer(self, who: impl Display) -> Error {
        let within = show_duration(self.within);
        let known = match self.unanswered {
            Outcome::Unknown => "; the outcome is unknown",
            Outcome::Unchanged => "",
        };
        Error::unavailable(format!("{who} did not answer within {within}{known}"), self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::call::{Reply, StoreRequest};
    use crate::clock::ManualClock;
    use crate::error::ErrorKind;
    use crate::memory::MemoryStore;
    use crate::store::StoreOptions;
    use crate::store::middleware::Middleware;

    const BOUND: Duration = Duration::from_millis(500);

    /// A store that declares a time-out.
    struct Promises(Arc<dyn Store>, Option<Duration>);

    impl Middleware for Promises {
        fn store(&self) -> Arc<dyn Store> {
            Arc::clone(&self.0)
        }
        fn answers_within(&self) -> Option<Duration> {
            self.1
        }
        async fn handle(&self, request: StoreRequest) -> Result<Reply> {
            self.0.call(request).await
        }
    }

    fn look<F: Future>(call: Pin<&mut F>) -> Option<F::Output> {
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn timeout_error_states_the_outcome() {
        for (timeout, outcome, words) in [
            (
                Timeout::change(BOUND),
                Outcome::Unknown,
                "the store did not answer within 500ms; the outcome is unknown",
            ),
            (
                Timeout::read(BOUND),
                Outcome::Unchanged,
                "the store did not answer within 500ms",
            ),
        ] {
            let clock = ManualClock::new(0, 1);
            let mut call = pin!(timeout.call(&clock, "the store", pending::<Result<()>>()));
            assert!(look(call.as_mut()).is_none());
            clock.advance(BOUND);
            let error = look(call.as_mut()).expect("it is over").unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, outcome));
            assert_eq!(error.to_string(), words);
        }
    }

    #[test]
    fn step_uses_the_shorter_timeout_of_store_and_caller() {
        let two = BOUND * 2;
        for (own, items, is_ours) in [
            (None, 1, true),
            (Some(two), 1, true),
            (Some(BOUND), 1, false),
            (Some(BOUND), 200, false),
            (Some(BOUND), 201, true),
        ] {
            let clock = Arc::new(ManualClock::new(0, 1));
            let memory = MemoryStore::new(StoreOptions::default(), clock.clone());
            let store = Promises(memory, own);
            let mut call = pin!(Timeout::change(BOUND).steps(&*clock, &store, items, pending::<Result<()>>()));
            assert!(look(call.as_mut()).is_none());
            assert_eq!(clock.next_wake(), is_ours.then_some(BOUND), "{own:?}, {items}");
        }
    }
}
