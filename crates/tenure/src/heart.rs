//! A thread of its own with a runtime of its own, for what must not wait behind user code.
//!
//! Beats that share a runtime with the user's tasks stop when those tasks block it, and a busy process then looks like
//! a dead one. So stores are opened and beats are sent on this thread; whoever calls a store goes through it as well
//! (see `on_heart`), because a connection lives on the runtime that first used it.
//!
//! It holds no logic: everything that runs here runs on any runtime that a caller gives.

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

/// The thread and its runtime. Dropping it stops both, and with them every task that runs there.
#[derive(Debug)]
pub struct Heart {
    runtime: Handle,
    stop: CancellationToken,
}

impl Heart {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Misconfigured` when the system refuses another thread or another poller.
    pub fn start() -> Result<Self> {
        let refused =
            |what: &'static str| move |error: std::io::Error| Error::new(ErrorKind::Misconfigured, what).because(error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(refused(
            "the runtime for heartbeats cannot be made; raise the limit of open files",
        ))?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        thread::Builder::new()
            .name("tenure-heart".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.cancelled());
                // A store call that blocks must not keep the thread, or the program's exit, waiting.
                runtime.shutdown_background();
            })
            .map_err(refused(
                "the thread for heartbeats cannot be started; raise the limit of threads",
            ))?;
        Ok(Self { runtime: handle, stop })
    }

    /// Where to spawn what must not starve.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs work on the heart and waits for it. Dropping the future drops the work.
    ///
    /// # Errors
    /// `Internal` when the work panicked or the heart was stopped meanwhile.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        run_on(&self.runtime, work).await
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The runtime that sends the beats of a membership, and the clock that it goes by. It runs for as long as this is kept.
#[derive(Clone)]
pub struct HeartbeatRuntime(pub(crate) Context);

impl HeartbeatRuntime {
    /// Where to spawn what must not starve.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.0.runtime
    }

    /// The clock of the membership.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Runs work there and waits for it. Dropping the future drops the work.
    ///
    /// # Errors
    /// `Internal` when the work panicked or the runtime was stopped meanwhile.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        run_on(self.handle(), work).await
    }
}

impl fmt::Debug for HeartbeatRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatRuntime")
    }
}

/// Runs work on another runtime and waits for it. Dropping the future drops the work.
pub(crate) async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    // One type of task for all calls: each type of its own would be two thousand lines of a runtime's code.
    type Done = Box<dyn Any + Send>;
    let task: Pin<Box<dyn Future<Output = Done> + Send>> = Box::pin(async move { Box::new(work.await) as Done });
    let done = AbortOnDropHandle::new(runtime.spawn(task)).await.map_err(|error| {
        let what = if error.is_panic() {
            "a task of the heart panicked"
        } else {
            "the heart was stopped"
        };
        Error::new(ErrorKind::Internal, what).because(error)
    })?;
    Ok(*done.downcast().expect("the task answers with what its work did"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_runs_on_the_heart_and_a_panic_is_an_error() {
        let heart = Heart::start().unwrap();
        let name = heart
            .run(async { thread::current().name().map(str::to_owned) })
            .await
            .unwrap();
        assert_eq!(name.as_deref(), Some("tenure-heart"));
        let error = heart.run::<()>(async { panic!("boom") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        heart
            .run(async {})
            .await
            .expect("the heart survives a panic of its work");
    }

    #[test]
    fn dropping_the_heart_drops_its_work() {
        let heart = Heart::start().unwrap();
        let (alive, dropped) = mpsc::channel::<()>();
        heart.runtime().spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(heart);
        assert_eq!(dropped.recv(), Err(mpsc::RecvError));
    }
}
