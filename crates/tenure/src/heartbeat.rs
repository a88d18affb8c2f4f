//! A dedicated thread and runtime for heartbeats and store I/O.
//!
//! Beats that share a runtime with user tasks stop when those tasks block it, and a busy process then looks like a dead
//! one. Stores are therefore opened, called and beaten on this thread. User calls run there too (see `on_runtime`),
//! because a connection lives on the runtime that first used it.
//!
//! This module holds no logic: everything that runs here also runs on a runtime of the caller.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Context;
use crate::trace;

/// The heartbeat thread and its runtime. Dropping it stops both and aborts every task on the runtime.
#[derive(Debug)]
pub struct HeartbeatThread {
    runtime: Handle,
    stop: CancellationToken,
}

impl HeartbeatThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Misconfigured` when the system refuses another thread or poller.
    pub fn start() -> Result<Self> {
        let refused =
            |what: &'static str| move |error: std::io::Error| Error::new(ErrorKind::Misconfigured, what).because(error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(refused(
            "the runtime for heartbeats cannot be created; raise the limit of open files",
        ))?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        thread::Builder::new()
            .name("tenure-beats".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.cancelled());
                // A blocking store call must not delay the end of the thread or of the program.
                runtime.shutdown_background();
            })
            .map_err(refused(
                "the thread for heartbeats cannot be started; raise the limit of threads",
            ))?;
        Ok(Self { runtime: handle, stop })
    }

    /// The runtime. Tasks spawned here are not starved by user code.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs a future on this runtime and waits for it. Dropping the returned future aborts the work.
    ///
    /// # Errors
    /// `Internal` when the work panicked or the thread has stopped.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        run_on(&self.runtime, work).await
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The runtime and the clock that a membership beats on. The runtime lives as long as this handle.
#[derive(Clone)]
pub struct HeartbeatRuntime(pub(crate) Context);

impl HeartbeatRuntime {
    /// The runtime. Tasks spawned here are not starved by user code.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.0.runtime
    }

    /// The clock of the membership.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Runs a future on this runtime and waits for it. Dropping the returned future aborts the work.
    ///
    /// # Errors
    /// `Internal` when the work panicked or the runtime has stopped.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        run_on(self.handle(), work).await
    }
}

impl fmt::Debug for HeartbeatRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatRuntime")
    }
}

/// Runs a future on another runtime and waits for it. Dropping the returned future aborts the work.
pub(crate) async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    // One task type for all calls: each instantiation of a spawned task compiles about two thousand lines of the
    // runtime.
    type BoxedOutput = Box<dyn Any + Send>;
    let task: Pin<Box<dyn Future<Output = BoxedOutput> + Send>> =
        Box::pin(trace::here(async move { Box::new(work.await) as BoxedOutput }));
    let done = AbortOnDropHandle::new(runtime.spawn(task)).await.map_err(|error| {
        let what = if error.is_panic() {
            "a task on the heartbeat runtime panicked"
        } else {
            "the heartbeat runtime has stopped"
        };
        Error::new(ErrorKind::Internal, what).because(error)
    })?;
    Ok(*done.downcast().expect("the task returns the output of its work"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn panicking_work_is_an_error_and_the_thread_survives() {
        let heartbeat = HeartbeatThread::start().unwrap();
        let name = heartbeat
            .run(async { thread::current().name().map(str::to_owned) })
            .await
            .unwrap();
        assert_eq!(name.as_deref(), Some("tenure-beats"));
        let error = heartbeat.run::<()>(async { panic!("boom") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        heartbeat
            .run(async {})
            .await
            .expect("the thread survives a panic of its work");
    }

    #[test]
    fn dropping_the_thread_aborts_its_work() {
        let heartbeat = HeartbeatThread::start().unwrap();
        let (alive, dropped) = mpsc::channel::<()>();
        heartbeat.runtime().spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(heartbeat);
        assert_eq!(dropped.recv(), Err(mpsc::RecvError));
    }
}
