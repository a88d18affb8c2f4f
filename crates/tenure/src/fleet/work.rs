//! The user task of one target, from its start until its guard has come back.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure_core::clock::{Clock, Mono};
use tenure_core::id::MemberId;
use tenure_core::lease::Token;
use tenure_core::verdict::Verdict;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::assignment::{Assignment, Ended, ReturnedLease};
use crate::lease::LeaseGuard;

/// The user's task for any target.
pub(super) type Task = Arc<dyn Fn(Assignment) -> BoxFuture<'static, ()> + Send + Sync>;

/// Starts tasks.
pub(super) struct Starter {
    pub(super) task: Task,
    pub(super) runtime: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) back: UnboundedSender<ReturnedLease>,
}

/// A target of this node.
pub(super) struct Work {
    /// Since when this node holds the lease.
    pub(super) since: Mono,
    pub(super) token: Token,
    /// Cancelled once the lease is lost.
    pub(super) lost: CancellationToken,
    /// Asks the task to stop.
    stop: CancellationToken,
    /// Drops the task.
    cut: CancellationToken,
    pub(super) state: WorkState,
    /// When the task was last started.
    pub(super) started: Mono,
    /// How often in a row the task ended unexpectedly.
    pub(super) ended_in_a_row: u32,
}

pub(super) enum WorkState {
    /// The task owns the guard.
    Running,
    /// The task ended; it is restarted at `until`.
    Resting { guard: LeaseGuard, until: Mono },
    /// The task was told to stop and is still running.
    Stopping(Stopping),
}

/// What to do with a lease when its task has ended.
pub(super) struct Stopping {
    /// The successor; `None` to release.
    pub(super) to: Option<MemberId>,
    /// When the task is dropped.
    pub(super) cut_at: Mono,
    /// From when the task counts as stubborn.
    pub(super) stubborn_at: Mono,
    pub(super) is_stubborn: bool,
}

impl Drop for Work {
    /// Stops the task: no loop manages it any longer.
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut.cancel();
    }
}

impl Work {
    /// Starts the task for a newly granted lease.
    pub(super) fn begin(guard: LeaseGuard, since: Mono, starter: &Starter) -> Self {
        let mut work = Self {
            since,
            token: guard.token(),
            lost: guard.lost(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            state: WorkState::Running,
            started: since,
            ended_in_a_row: 0,
        };
        work.start(guard, starter);
        work
    }

    /// Starts the task on the user's runtime.
    pub(super) fn start(&mut self, guard: LeaseGuard, starter: &Starter) {
        (self.stop, self.cut) = (CancellationToken::new(), CancellationToken::new());
        self.state = WorkState::Running;
        self.started = starter.clock.mono();
        let (task, lost, stop, cut) = (
            Arc::clone(&starter.task),
            self.lost.clone(),
            self.stop.clone(),
            self.cut.clone(),
        );
        let assignment = Assignment::new(guard, stop.clone(), Arc::clone(&starter.clock), starter.back.clone());
        starter.runtime.spawn(async move {
            let mine = assignment.clone();
            let work = AssertUnwindSafe(async move { task(mine).await }).catch_unwind();
            let ended = while_held(work, assignment.guard(), &lost, &cut).await;
            // Also stops work that the task has started elsewhere.
            stop.cancel();
            assignment.note(ended);
        });
    }

    /// Tells the task to stop within `within`. Returns the guard if no task is running.
    pub(super) fn ask_to_stop(&mut self, to: Option<MemberId>, now: Mono, within: Duration) -> Option<LeaseGuard> {
        self.stop.cancel();
        let stopping = WorkState::Stopping(Stopping {
            to,
            cut_at: now + within,
            stubborn_at: now + within * 2,
            is_stubborn: false,
        });
        match std::mem::replace(&mut self.state, stopping) {
            WorkState::Resting { guard, .. } => Some(guard),
            WorkState::Running | WorkState::Stopping(_) => None,
        }
    }

    /// Restarts the task after its pause.
    pub(super) fn go_on(&mut self, starter: &Starter) {
        if let WorkState::Resting { guard, .. } = std::mem::replace(&mut self.state, WorkState::Running) {
            self.start(guard, starter);
        }
    }

    /// Drops the task at its next `await`.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    pub(super) fn is_stubborn(&self) -> bool {
        matches!(&self.state, WorkState::Stopping(stopping) if stopping.is_stubborn)
    }
}

/// Polls `work` until it ends, its lease is lost, or it is cut; `work` is dropped before this returns.
///
/// The work is polled only while the lease is held. While the verdict is uncertain it stays suspended, so a cycle in
/// progress makes no further step, and neither does a process resumed from suspend before a confirmation.
async fn while_held<E>(
    work: impl Future<Output = Result<(), E>>,
    guard: &LeaseGuard,
    lost: &CancellationToken,
    cut: &CancellationToken,
) -> Ended {
    let mut work = std::pin::pin!(work);
    loop {
        let step = poll_fn(|context| match guard.verdict() {
            Verdict::Held => work.as_mut().poll(context).map(Some),
            Verdict::Uncertain | Verdict::Lost => Poll::Ready(None),
        });
        tokio::select! {
            biased;
            () = lost.cancelled() => return Ended::Dropped,
            () = cut.cancelled() => return Ended::Dropped,
            done = step => match done {
                Some(Ok(())) => return Ended::Returned,
                Some(Err(_)) => return Ended::Panicked,
                None => {}
            },
        }
        tokio::select! {
            biased;
            () = lost.cancelled() => return Ended::Dropped,
            () = cut.cancelled() => return Ended::Dropped,
            _ = guard.decided() => {}
        }
    }
}
