//! Runs the user's task on one target while its old key is held.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tenure::fleet::Assignment;
use tenure_core::clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::OldLeases;
use super::record::{AssignmentGuard, KeyGuard, KeyRecord};

/// How the task on a target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    Finished,
    /// The old key was no longer certainly ours.
    Interrupted,
}

/// Runs the task whenever the old key is ours, as long as Tenure's lease is.
pub(super) async fn run<F, W>(old: OldLeases, outer: Assignment, task: Arc<F>)
where
    F: Fn(Assignment) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let mut key = TaskKey::open(old, outer.clone());
    let (record, clock) = (Arc::clone(&key.record), Arc::clone(&key.old.inner.clock));
    let mut changes = record.watch();
    loop {
        tokio::select! {
            biased;
            () = outer.stopping().cancelled() => break,
            () = valid(&key.old, &record, &mut changes) => {}
        }
        let guard = KeyGuard::new(&record, &clock);
        let inner = key.lend(&guard);
        let ended = while_held(task(inner), &guard, &mut changes, &*clock).await;
        key.take_back().await;
        if ended == TaskEnd::Finished && guard.holds() || outer.stopping().is_cancelled() {
            break;
        }
        key.old.inner.lost.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            target = %record.target,
            "dropped the task: its old lease is not certainly ours; it starts again once it is"
        );
    }
    key.close().await;
}

/// Waits until the old key is ours. No task may be running: a lost key is requested again.
async fn valid(old: &OldLeases, record: &KeyRecord, changes: &mut watch::Receiver<()>) {
    loop {
        let now = old.inner.clock.mono();
        if record.valid_until() > now {
            return;
        }
        if record.request(now) {
            old.inner.wake.notify_one();
        }
        // Cannot fail: the sender is in the record.
        let _ = changes.changed().await;
    }
}

/// Polls the task until it completes or the old key is not certainly ours. The task is dropped before this returns. It
/// is polled only while the key is ours, so a process that was stopped takes no further step first.
async fn while_held(
    work: impl Future<Output = ()>,
    guard: &KeyGuard,
    changes: &mut watch::Receiver<()>,
    clock: &dyn Clock,
) -> TaskEnd {
    let mut work = pin!(work);
    loop {
        let left = guard.valid_until().since(clock.mono());
        let step = poll_fn(|context| match guard.holds() {
            true => work.as_mut().poll(context).map(|()| TaskEnd::Finished),
            false => Poll::Ready(TaskEnd::Interrupted),
        });
        tokio::select! {
            biased;
            ended = step => return ended,
            // The validity changed; the poll above checks it.
            _ = changes.changed() => {}
            () = clock.sleep(left) => {}
        }
    }
}

/// The old key of one target and its task. However the task ends, the key is released after every clone of the
/// assignment is gone, and only then is the assignment returned to the fleet.
struct TaskKey {
    old: OldLeases,
    id: u64,
    record: Arc<KeyRecord>,
    /// Taken when this is closed.
    outer: Option<Assignment>,
    lent: Option<LentAssignment>,
}

/// An assignment passed to the user's task.
struct LentAssignment {
    stop: CancellationToken,
    /// Cancelled when its last clone is dropped.
    gone: CancellationToken,
}

impl TaskKey {
    fn open(old: OldLeases, outer: Assignment) -> Self {
        let inner = &old.inner;
        let id = inner.serial.fetch_add(1, Ordering::Relaxed);
        let guard = outer.guard();
        let value = match &inner.instance {
            Some(instance) => instance.clone(),
            None => format!("{}#{id}", guard.tenure()),
        };
        let now = inner.clock.mono();
        let record = KeyRecord::new(guard.lease().clone(), value, guard.lost(), inner.timing, now);
        inner.records().insert(id, Arc::clone(&record));
        inner.wake.notify_one();
        Self {
            old,
            id,
            record,
            outer: Some(outer),
            lent: None,
        }
    }

    /// An assignment for the user's task.
    ///
    /// # Panics
    /// Never: the outer assignment is taken only by `close`, which consumes the key.
    fn lend(&mut self, guard: &Arc<KeyGuard>) -> Assignment {
        let outer = self.outer.as_ref().expect("taken only by close");
        let (stop, gone) = (outer.stopping().child_token(), CancellationToken::new());
        let condition = AssignmentGuard {
            guard: Arc::clone(guard),
            _gone: gone.clone().drop_guard(),
        };
        self.lent = Some(LentAssignment {
            stop: stop.clone(),
            gone,
        });
        outer.narrowed(Box::new(condition), stop)
    }

    /// Waits until the last clone of the lent assignment is dropped: its holder may still be working.
    async fn take_back(&mut self) {
        if let Some(lent) = &self.lent {
            lent.stop.cancel();
            lent.gone.cancelled().await;
        }
        self.lent = None;
    }

    /// Releases the old key, then the assignment. Continues in the background when dropped.
    async fn close(mut self) {
        if let Some(closing) = self.closing() {
            // Fails only if the runtime has ended.
            let _ = self.old.inner.runtime.spawn(closing).await;
        }
    }

    fn closing(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let outer = self.outer.take()?;
        let (old, id, record, lent) = (self.old.clone(), self.id, Arc::clone(&self.record), self.lent.take());
        Some(async move {
            if let Some(lent) = lent {
                lent.stop.cancel();
                lent.gone.cancelled().await;
            }
            record.start_release(old.inner.clock.mono());
            old.inner.wake.notify_one();
            record.finished().await;
            old.inner.records().remove(&id);
            drop(outer);
        })
    }
}

impl Drop for TaskKey {
    fn drop(&mut self) {
        if let Some(closing) = self.closing() {
            self.old.inner.runtime.spawn(closing);
        }
    }
}
