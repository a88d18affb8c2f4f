//! A target assigned to a user task.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::id::LeaseName;
use tenure_core::lease::Token;
use tenure_core::verdict::Verdict;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::lease::LeaseGuard;

/// A target that this node works on while it holds the lease. Clones share state.
///
/// Call [`Assignment::next_cycle`] before each cycle of work. The lease is released only after the task has ended *and*
/// the last clone is dropped, because the holder of a clone may still be working.
#[derive(Clone)]
pub struct Assignment {
    inner: Arc<Inner>,
}

struct Inner {
    held: Backing,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
}

/// The basis of an assignment.
enum Backing {
    /// A lease.
    Lease {
        /// `None` only while this is being dropped.
        guard: Option<LeaseGuard>,
        ended: OnceLock<Ended>,
        back: UnboundedSender<ReturnedLease>,
    },
    /// Another assignment, with an additional condition.
    Nested {
        outer: Assignment,
        condition: Box<dyn Condition>,
    },
}

/// A condition for the work beside the lease. Dropped with the last clone of the assignment.
pub trait Condition: Send + Sync {
    /// Whether the condition holds now. No I/O. Once false, it stays false.
    fn holds(&self) -> bool;

    /// Until when the condition holds without a further confirmation.
    fn valid_until(&self) -> Mono;
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The task returned.
    Returned,
    /// The task panicked.
    Panicked,
    /// The task was dropped: its lease was lost, or it took too long to stop.
    Dropped,
}

/// The lease of a task that has ended.
pub(super) struct ReturnedLease {
    pub(super) guard: LeaseGuard,
    pub(super) ended: Ended,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Backing::Lease { guard, ended, back } = &mut self.held else {
            return;
        };
        if let Some(guard) = guard.take() {
            let ended = ended.get().copied().unwrap_or(Ended::Dropped);
            // If the receiver is gone, dropping the guard releases the lease in the background.
            drop(back.send(ReturnedLease { guard, ended }));
        }
    }
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Assignment").field(self.guard()).finish()
    }
}

impl Assignment {
    pub(super) fn new(
        guard: LeaseGuard,
        stop: CancellationToken,
        clock: Arc<dyn Clock>,
        back: UnboundedSender<ReturnedLease>,
    ) -> Self {
        let held = Backing::Lease {
            guard: Some(guard),
            ended: OnceLock::new(),
            back,
        };
        Self {
            inner: Arc::new(Inner { held, stop, clock }),
        }
    }

    /// The same target under an additional condition and with its own `stop`. The `stopping` of this assignment still
    /// ends the target, so `stop` should follow it.
    #[must_use]
    pub fn narrowed(&self, condition: Box<dyn Condition>, stop: CancellationToken) -> Self {
        let held = Backing::Nested {
            outer: self.clone(),
            condition,
        };
        let clock = Arc::clone(&self.inner.clock);
        Self {
            inner: Arc::new(Inner { held, stop, clock }),
        }
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &LeaseName {
        self.guard().lease()
    }

    /// The lease guard.
    ///
    /// # Panics
    /// Never: the guard is taken only when the last clone is dropped.
    #[must_use]
    pub fn guard(&self) -> &LeaseGuard {
        match &self.inner.held {
            Backing::Nested { outer, .. } => outer.guard(),
            Backing::Lease { guard, .. } => guard
                .as_ref()
                .expect("the guard is taken only when the last clone is dropped, and this is one"),
        }
    }

    /// The fencing token. Pass it to storage that can reject an older one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard().token()
    }

    /// What this node may assume about its lease now. No I/O. Work only while it is `Held`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.inner.held {
            Backing::Nested { condition, .. } if !condition.holds() => Verdict::Lost,
            Backing::Nested { outer, .. } => outer.verdict(),
            Backing::Lease { .. } => self.guard().verdict(),
        }
    }

    /// Until when the verdict stays `Held` without a further confirmation.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        match &self.inner.held {
            Backing::Nested { outer, condition } => outer.valid_until().min(condition.valid_until()),
            Backing::Lease { .. } => self.guard().valid_until(),
        }
    }

    /// Cancelled when the work should stop: the target moves to another node, is paused or removed, this node drains,
    /// or the lease is lost. On a lost lease the task is dropped immediately, otherwise after
    /// [`FleetSettings::stop_within`](super::FleetSettings::stop_within).
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Waits until the next cycle may begin: no wait while the lease is held, otherwise until it is confirmed again.
    /// Returns `false` when the task should end.
    pub async fn next_cycle(&self) -> bool {
        loop {
            if self.inner.stop.is_cancelled() {
                return false;
            }
            match self.verdict() {
                Verdict::Held => return true,
                Verdict::Lost => return false,
                Verdict::Uncertain => {}
            }
            tokio::select! {
                biased;
                () = self.inner.stop.cancelled() => return false,
                _ = self.guard().decided() => {}
            }
        }
    }

    /// Pauses between two cycles, on the fleet's clock. Returns early when the work should stop.
    pub async fn rest(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.inner.stop.cancelled() => {}
            () = self.inner.clock.sleep(pause) => {}
        }
    }

    /// Records how the task ended, for the receiver of the guard.
    pub(super) fn note(&self, ended: Ended) {
        if let Backing::Lease { ended: noted, .. } = &self.inner.held {
            // Only the wrapper around the task calls this, once.
            let _first = noted.set(ended);
        }
    }
}
