//! One operating-system process: a runtime of its own that runs only when the simulation drives it.
//!
//! It is a real tokio runtime, so the library code runs as in a program. Between two calls of [`Process::run`] nothing
//! drives it: a process that is not run is stopped as by `SIGSTOP`, and one that is dropped is killed as by `SIGKILL`:
//! its tasks are gone and its connections silent.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// A process.
#[derive(Debug)]
pub struct Process {
    runtime: Runtime,
    idle: Arc<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    reached: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Process {
    /// Creates a process without tasks.
    ///
    /// # Errors
    /// If the system refuses a runtime.
    pub fn new() -> Result<Self> {
        let idle = Arc::<Idle>::default();
        let parked = Arc::clone(&idle);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || parked.reach())
            .build()
            .context("a runtime cannot be made")?;
        Ok(Self { runtime, idle })
    }

    /// The handle to spawn its tasks.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Runs every task until all of them wait.
    pub fn run(&self) {
        self.idle.reached.store(false, Ordering::Relaxed);
        let idle = &self.idle;
        self.runtime.block_on(poll_fn(|context| {
            // The runtime parks only when no task can run, and then wakes us.
            if idle.reached.swap(false, Ordering::Relaxed) {
                return Poll::Ready(());
            }
            *idle.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            Poll::Pending
        }));
    }
}

impl Idle {
    fn reach(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            self.reached.store(true, Ordering::Relaxed);
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn run_returns_when_every_task_waits() {
        let process = Process::new().unwrap();
        let (done, notify) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Notify::new()));
        for _ in 0..200 {
            let (done, notify) = (Arc::clone(&done), Arc::clone(&notify));
            process.handle().spawn(async move {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                done.fetch_add(1, Ordering::Relaxed);
                notify.notified().await;
                done.fetch_add(1_000, Ordering::Relaxed);
            });
        }
        assert_eq!(done.load(Ordering::Relaxed), 0);
        process.run();
        assert_eq!(done.load(Ordering::Relaxed), 200);
        process.run();
        assert_eq!(done.load(Ordering::Relaxed), 200);
        notify.notify_waiters();
        process.run();
        assert_eq!(done.load(Ordering::Relaxed), 200_200);
    }

    #[test]
    fn dropping_a_process_drops_its_tasks() {
        let process = Process::new().unwrap();
        let (kept, seen) = (Arc::new(()), Arc::new(AtomicU64::new(0)));
        let (inside, sees) = (Arc::clone(&kept), Arc::clone(&seen));
        process.handle().spawn(async move {
            std::future::pending::<()>().await;
            drop(inside);
            sees.fetch_add(1, Ordering::Relaxed);
        });
        process.run();
        drop(process);
        assert_eq!((Arc::strong_count(&kept), seen.load(Ordering::Relaxed)), (1, 0));
    }
}
