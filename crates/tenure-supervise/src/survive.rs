//! Tasks that outlive their own bugs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, jitter};
use tokio::task::JoinHandle;

/// How long a task that has panicked rests before it starts afresh.
const REST: Duration = Duration::from_secs(1);

/// A task that ends with its handle.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `make()` on the runtime of the caller until it is done. After a panic, `broken` is called with what to tell
/// people, and `make` makes a fresh one.
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
    Task(tokio::spawn(async move {
        while AssertUnwindSafe(async { make().await }).catch_unwind().await.is_err() {
            tracing::error!(task = name, "panicked; it starts again");
            broken(format!("the task {name} panicked"));
            clock.sleep(jitter(&*clock, REST, 25)).await;
        }
    }))
}
