//! The user's task on one target, inside the old key of that target.

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
use super::record::{Hold, LentHold, Record};

/// How the task on a target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    ByItself,
    /// The old key was not certainly ours any more.
    Cut,
}

/// Works on a target for as long as Tenure's lease is ours, and whenever its old key is.
pub(super) async fn run<F, W>(old: OldLeases, outer: Assignment, task: Arc<F>)
where
    F: Fn(Assignment) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let mut claim = Claim::open(old, outer.clone());
    let (record, clock) = (Arc::clone(&claim.record), Arc::clone(&claim.old.inner.clock));
    let mut changes = record.watch();
    loop {
        tokio::select! {
            biased;
            () = outer.stopping().cancelled() => break,
            () = valid(&claim.old, &record, &mut changes) => {}
        }
        let hold = Hold::new(&record, &clock);
        let inner = claim.lend(&hold);
        let ended = while_held(task(inner), &hold, &mut changes, &*clock).await;
        claim.take_back().await;
        if ended == Ended::ByItself && hold.holds() || outer.stopping().is_cancelled() {
            break;
        }
        claim.old.inner.lost.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            target = %record.target,
            "the work was dropped: its old lease is not certainly ours; it is started anew once it is"
        );
    }
    claim.close().await;
}

/// Waits until the old key is ours. Nobody may be working on the target any more: a key that was lost is asked for anew.
async fn valid(old: &OldLeases, record: &Record, changes: &mut watch::Receiver<()>) {
    loop {
        let now = old.inner.clock.mono();
        if record.valid_until() > now {
            return;
        }
        if record.want(now) {
            old.inner.wake.notify_one();
        }
        // It cannot fail: the sender is in the record.
        let _ = changes.changed().await;
    }
}

/// Lets work go on until it ends by itself or must not go on; it is dropped before this answers. It is polled only while
/// the old key is certainly ours: a process that was stopped does not do another step first.
async fn while_held(
    work: impl Future<Output = ()>,
    hold: &Hold,
    changes: &mut watch::Receiver<()>,
    clock: &dyn Clock,
) -> Ended {
    let mut work = pin!(work);
    loop {
        let left = hold.valid_until().since(clock.mono());
        let step = poll_fn(|context| match hold.holds() {
            true => work.as_mut().poll(context).map(|()| Ended::ByItself),
            false => Poll::Ready(Ended::Cut),
        });
        tokio::select! {
            biased;
            ended = step => return ended,
            // Longer valid, or lost: the poll above tells.
            _ = changes.changed() => {}
            () = clock.sleep(left) => {}
        }
    }
}

/// The old key of one target in the hands of its task. However the task ends, the key is given back after everybody who
/// works on the target has ended, and only then the assignment goes back to the fleet.
struct Claim {
    old: OldLeases,
    id: u64,
    record: Arc<Record>,
    /// Taken when it is closed.
    outer: Option<Assignment>,
    lent: Option<Lent>,
}

/// An assignment in the user's hands.
struct Lent {
    stop: CancellationToken,
    /// Cancelled when its last clone is gone.
    gone: CancellationToken,
}

impl Claim {
    fn open(old: OldLeases, outer: Assignment) -> Self {
        let inner = &old.inner;
        let id = inner.serial.fetch_add(1, Ordering::Relaxed);
        let guard = outer.guard();
        let value = match &inner.instance {
            Some(instance) => instance.clone(),
            None => format!("{}#{id}", guard.tenure()),
        };
        let now = inner.clock.mono();
        let record = Record::new(guard.lease().clone(), value, guard.lost(), inner.timing, now);
        inner.book().insert(id, Arc::clone(&record));
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
    /// Never: the outer one is taken only when the claim is closed.
    fn lend(&mut self, hold: &Arc<Hold>) -> Assignment {
        let outer = self
            .outer
            .as_ref()
            .expect("it is taken only by closing, which ends this claim");
        let (stop, gone) = (outer.stopping().child_token(), CancellationToken::new());
        let condition = LentHold {
            hold: Arc::clone(hold),
            _gone: gone.clone().drop_guard(),
        };
        self.lent = Some(Lent {
            stop: stop.clone(),
            gone,
        });
        outer.narrowed(Box::new(condition), stop)
    }

    /// Waits until the last clone of the lent assignment is gone: whoever has one may still be working.
    async fn take_back(&mut self) {
        if let Some(lent) = &self.lent {
            lent.stop.cancel();
            lent.gone.cancelled().await;
        }
        self.lent = None;
    }

    /// Gives the old key back, then the assignment. Goes on in the background when this is dropped.
    async fn close(mut self) {
        if let Some(closing) = self.closing() {
            // It fails only when its runtime has ended, and then nothing more can be done.
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
            record.give_back(old.inner.clock.mono());
            old.inner.wake.notify_one();
            record.is_over().await;
            old.inner.book().remove(&id);
            drop(outer);
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(closing) = self.closing() {
            self.old.inner.runtime.spawn(closing);
        }
    }
}
