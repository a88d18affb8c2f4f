//! Operating system calls that may hang forever. Each kind runs on its own thread, under a deadline.
//!
//! A `stat` on a file system whose server is frozen does not return and cannot be cancelled. So the call runs on a
//! thread, the caller waits at most its deadline, and no further call is made while the thread is stuck: however often
//! a caller retries, at most one thread hangs. A late result is dropped because it describes the past.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenure_core::clock::{Clock, within};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// The call did not return in time.
    #[error("hangs")]
    TimedOut,
    /// An earlier call has not returned yet, so this one was not made.
    #[error("an earlier call still hangs")]
    Stuck,
    /// The call panicked, or there is no thread.
    #[error("its thread has failed")]
    Failed,
}

/// One thread for calls that may hang. It ends after the handle is dropped, unless it is stuck.
#[derive(Debug)]
pub struct BlockingThread {
    jobs: mpsc::Sender<Job>,
    busy: Arc<AtomicBool>,
}

impl BlockingThread {
    /// Starts the thread. If the system refuses one, every call returns [`BlockingError::Failed`].
    pub fn start(name: &str) -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(job) = inbox.recv() {
                job();
            }
        });
        if let Err(error) = started {
            tracing::error!(thread = name, %error, "cannot start the thread for calls that may hang");
        }
        Self {
            jobs,
            busy: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Runs `work` on the thread and waits at most `bound`.
    ///
    /// # Errors
    /// See [`BlockingError`]. After `TimedOut` the call may still take effect.
    pub async fn run<T: Send + 'static>(
        &self,
        clock: &dyn Clock,
        bound: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(BlockingError::Stuck);
        }
        let (tell, answer) = oneshot::channel();
        let busy = Arc::clone(&self.busy);
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            // Cleared before the result is sent: the receiver may call again immediately.
            busy.store(false, Ordering::Release);
            if let Ok(done) = done {
                // A caller that timed out has dropped the receiver.
                let _ = tell.send(done);
            }
        };
        if self.jobs.send(Box::new(job)).is_err() {
            self.busy.store(false, Ordering::Release);
            return Err(BlockingError::Failed);
        }
        match within(clock, bound, answer).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) => Err(BlockingError::Failed),
            None => Err(BlockingError::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn hung_call_times_out_and_its_late_result_is_dropped() {
        let (clock, thread) = (SystemClock::new(), BlockingThread::start("test"));
        let (go, wait) = mpsc::channel::<()>();
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(10));
        let hung = thread.run(&clock, short, move || wait.recv().map(|()| 1)).await;
        assert_eq!(hung.unwrap_err(), BlockingError::TimedOut);
        assert_eq!(thread.run(&clock, long, || 2).await, Err(BlockingError::Stuck));
        go.send(()).unwrap();
        tenure_testkit::wait::until("it is free again", long, || !thread.busy.load(Ordering::Acquire));
        assert_eq!(thread.run(&clock, long, || 3).await, Ok(3));
    }

    #[tokio::test]
    async fn panic_fails_only_its_own_call() {
        let (clock, thread) = (SystemClock::new(), BlockingThread::start("test"));
        let long = Duration::from_secs(10);
        let broken: Result<(), BlockingError> = thread.run(&clock, long, || panic!("on purpose")).await;
        assert_eq!(broken, Err(BlockingError::Failed));
        assert_eq!(thread.run(&clock, long, || 3).await, Ok(3));
    }
}
