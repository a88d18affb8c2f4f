//! Tasks that are restarted after a panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, jitter};
use tokio::task::JoinHandle;

/// The pause before a panicked task is restarted.
const REST: Duration = Duration::from_secs(1);

/// A task that is aborted when its handle is dropped.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Runs the work on the caller's runtime.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn of(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `make()` on the caller's runtime until it completes. After a panic, calls `broken` with a message for people
/// and runs `make()` again.
///
/// # Panics
/// Outside of a runtime.
pub(crate) fn spawn<F>(
    name: &'static str,
    clock: Arc<dyn Clock>,
    mut make: impl FnMut() -> F + Send + 'static,
    mut broken: impl FnMut(String) + Send + 'static,
) -> Task
where
    F: Future<Output = ()> + Send,
{
    Task::of(async move {
        while AssertUnwindSafe(async { make().await }).catch_unwind().await.is_err() {
            tracing::error!(task = name, "the task panicked; restarting it");
            broken(format!("the task {name} panicked"));
            clock.sleep(jitter(&*clock, REST, 25)).await;
        }
    })
}
