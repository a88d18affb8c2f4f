//! Calls into the operating system that may hang for ever: each kind on one thread of its own, under a deadline.
//!
//! A `stat` on a file system whose server has frozen does not return, and cannot be cancelled. So it runs where nobody
//! waits for it longer than they want to, and nothing else is asked of a thread that is stuck: however often somebody
//! looks, at most one thread hangs. An answer that comes too late is thrown away; it is about a time long ago.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenure_core::clock::{Clock, within};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Missed {
    /// This call has not come back in time.
    #[error("hangs")]
    Late,
    /// An earlier call has not come back yet, so this one was not made.
    #[error("still hangs")]
    Stuck,
    /// The call has panicked, or there is no thread.
    #[error("its thread has failed")]
    Failed,
}

/// One thread for calls that may hang. It ends with the handle, as soon as it is not stuck.
#[derive(Debug)]
pub(crate) struct OffThread {
    jobs: mpsc::Sender<Job>,
    busy: Arc<AtomicBool>,
}

impl OffThread {
    /// Starts the thread. When the system refuses one, every call answers [`Missed::Failed`].
    pub(crate) fn start(name: &str) -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(job) = inbox.recv() {
                job();
            }
        });
        if let Err(error) = started {
            tracing::error!(thread = name, %error, "no thread for calls that may hang");
        }
        Self {
            jobs,
            busy: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Runs `work` on the thread and waits for it at most `bound`.
    ///
    /// # Errors
    /// See [`Missed`]. After `Late` the call may still take effect.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        clock: &dyn Clock,
        bound: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Missed> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(Missed::Stuck);
        }
        let (tell, answer) = oneshot::channel();
        let busy = Arc::clone(&self.busy);
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            // Free before the answer is heard: who hears it may ask again at once.
            busy.store(false, Ordering::Release);
            if let Ok(done) = done {
                // A caller who has stopped waiting does not want it any more.
                let _ = tell.send(done);
            }
        };
        if self.jobs.send(Box::new(job)).is_err() {
            self.busy.store(false, Ordering::Release);
            return Err(Missed::Failed);
        }
        match within(clock, bound, answer).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) => Err(Missed::Failed),
            None => Err(Missed::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn a_call_that_hangs_is_left_alone_and_its_answer_is_not_taken_for_a_later_one() {
        let (clock, thread) = (SystemClock::new(), OffThread::start("test"));
        let (go, wait) = mpsc::channel::<()>();
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(10));
        let hung = thread.run(&clock, short, move || wait.recv().map(|()| 1)).await;
        assert_eq!(hung.unwrap_err(), Missed::Late);
        assert_eq!(thread.run(&clock, long, || 2).await, Err(Missed::Stuck));
        go.send(()).unwrap();
        tenure_testkit::wait::until("it is free again", long, || !thread.busy.load(Ordering::Acquire));
        assert_eq!(thread.run(&clock, long, || 3).await, Ok(3));
    }

    #[tokio::test]
    async fn a_call_that_panics_fails_alone() {
        let (clock, thread) = (SystemClock::new(), OffThread::start("test"));
        let long = Duration::from_secs(10);
        let broken: Result<(), Missed> = thread.run(&clock, long, || panic!("on purpose")).await;
        assert_eq!(broken, Err(Missed::Failed));
        assert_eq!(thread.run(&clock, long, || 3).await, Ok(3));
    }
}
