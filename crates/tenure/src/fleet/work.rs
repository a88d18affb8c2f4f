//! The user's task on one target, from its start until its guard has come back.

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

use super::assignment::{Assignment, Ended, Returned};
use crate::lease::LeaseGuard;

/// The user's task, for any target.
pub(super) type Task = Arc<dyn Fn(Assignment) -> BoxFuture<'static, ()> + Send + Sync>;

/// What it takes to start tasks.
pub(super) struct Starter {
    pub(super) task: Task,
    pub(super) runtime: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) back: UnboundedSender<Returned>,
}

/// One target of ours.
pub(super) struct Work {
    /// Since when we hold its lease.
    pub(super) since: Mono,
    pub(super) token: Token,
    /// Cancelled once the lease is lost.
    pub(super) lost: CancellationToken,
    /// Tells the task to stop.
    stop: CancellationToken,
    /// Drops the task.
    cut: CancellationToken,
    pub(super) state: State,
    /// When its task was started last.
    pub(super) started: Mono,
    /// How often in a row the task ended without being told to.
    pub(super) ended_in_a_row: u32,
}

pub(super) enum State {
    /// The task has the guard.
    Running,
    /// The task ended by itself, and is started again then.
    Resting { guard: LeaseGuard, until: Mono },
    /// The task was told to stop, and has not yet.
    Stopping(Stopping),
}

/// What is to become of a lease once its task has ended.
pub(super) struct Stopping {
    /// Its successor; nobody when it is just released.
    pub(super) to: Option<MemberId>,
    /// The task is dropped then.
    pub(super) cut_at: Mono,
    /// After that it counts as stubborn.
    pub(super) stubborn_at: Mono,
    pub(super) is_stubborn: bool,
}

impl Drop for Work {
    /// Nobody is in charge of the task any more.
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut.cancel();
    }
}

impl Work {
    /// Starts the task for a lease that was granted just now.
    pub(super) fn begin(guard: LeaseGuard, since: Mono, starter: &Starter) -> Self {
        let mut work = Self {
            since,
            token: guard.token(),
            lost: guard.lost(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            state: State::Running,
            started: since,
            ended_in_a_row: 0,
        };
        work.start(guard, starter);
        work
    }

    /// Starts the task, on the user's runtime.
    pub(super) fn start(&mut self, guard: LeaseGuard, starter: &Starter) {
        (self.stop, self.cut) = (CancellationToken::new(), CancellationToken::new());
        self.state = State::Running;
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
            // Whatever the task has started elsewhere learns it too.
            stop.cancel();
            assignment.note(ended);
        });
    }

    /// Tells the task to stop, within a while. Answers the guard when there is no task that could have it.
    pub(super) fn ask_to_stop(&mut self, to: Option<MemberId>, now: Mono, within: Duration) -> Option<LeaseGuard> {
        self.stop.cancel();
        let stopping = State::Stopping(Stopping {
            to,
            cut_at: now + within,
            stubborn_at: now + within * 2,
            is_stubborn: false,
        });
        match std::mem::replace(&mut self.state, stopping) {
            State::Resting { guard, .. } => Some(guard),
            State::Running | State::Stopping(_) => None,
        }
    }

    /// Starts the task again after a rest.
    pub(super) fn go_on(&mut self, starter: &Starter) {
        if let State::Resting { guard, .. } = std::mem::replace(&mut self.state, State::Running) {
            self.start(guard, starter);
        }
    }

    /// Drops the task at its next `await`.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    pub(super) fn is_stubborn(&self) -> bool {
        matches!(&self.state, State::Stopping(stopping) if stopping.is_stubborn)
    }
}

/// Lets work go on until it ends, or until it must not go on; the work is dropped before this answers.
///
/// The work is polled only while the lease is held. In doubt it stands still where it is, so that not even a cycle that
/// is under way does another step, and a process that was suspended does none before it was confirmed.
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
