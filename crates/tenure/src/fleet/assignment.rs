//! A target in the hands of the user's task.

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

/// A target that this node works on, for as long as its lease is ours. Cheap to clone; all clones are one.
///
/// Ask [`Assignment::next_cycle`] before every cycle of work. The lease is given back only after the task has ended *and*
/// the last clone is gone: whoever still has one may still be working.
#[derive(Clone)]
pub struct Assignment {
    inner: Arc<Inner>,
}

struct Inner {
    held: Held,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
}

/// What an assignment stands on.
enum Held {
    /// The lease itself.
    Lent {
        /// Taken only when this is dropped.
        guard: Option<LeaseGuard>,
        ended: OnceLock<Ended>,
        back: UnboundedSender<Returned>,
    },
    /// Another assignment, and what has to hold beside its lease.
    Narrowed {
        outer: Assignment,
        condition: Box<dyn Condition>,
    },
}

/// What has to hold beside the lease for work to go on. It is dropped with the last clone of the assignment.
pub trait Condition: Send + Sync {
    /// Whether it holds now. No I/O. Once it did not, it never does again.
    fn holds(&self) -> bool;

    /// Until when it holds if nothing more is heard.
    fn valid_until(&self) -> Mono;
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It returned by itself.
    Returned,
    /// It panicked.
    Panicked,
    /// It was dropped: its lease was lost, or it took too long to stop.
    Dropped,
}

/// A lease on which nobody works any more.
pub(super) struct Returned {
    pub(super) guard: LeaseGuard,
    pub(super) ended: Ended,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Held::Lent { guard, ended, back } = &mut self.held else {
            return;
        };
        if let Some(guard) = guard.take() {
            let ended = ended.get().copied().unwrap_or(Ended::Dropped);
            // When nobody takes it any more, dropping the guard releases the lease in the background.
            drop(back.send(Returned { guard, ended }));
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
        back: UnboundedSender<Returned>,
    ) -> Self {
        let held = Held::Lent {
            guard: Some(guard),
            ended: OnceLock::new(),
            back,
        };
        Self {
            inner: Arc::new(Inner { held, stop, clock }),
        }
    }

    /// The same target under one more condition, with a stop of its own. It does not keep this one's `stopping` from
    /// being what ends it; `stop` should follow it.
    #[must_use]
    pub fn narrowed(&self, condition: Box<dyn Condition>, stop: CancellationToken) -> Self {
        let held = Held::Narrowed {
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

    /// The guard of its lease.
    ///
    /// # Panics
    /// Never: the guard is taken only when the last clone of this is dropped.
    #[must_use]
    pub fn guard(&self) -> &LeaseGuard {
        match &self.inner.held {
            Held::Narrowed { outer, .. } => outer.guard(),
            Held::Lent { guard, .. } => guard
                .as_ref()
                .expect("the guard is taken only when the last clone is dropped, and this is one"),
        }
    }

    /// The fencing token: pass it to whatever can refuse an older one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard().token()
    }

    /// What this node may believe about its lease now. No I/O. Work only while it is `Held`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.inner.held {
            Held::Narrowed { condition, .. } if !condition.holds() => Verdict::Lost,
            Held::Narrowed { outer, .. } => outer.verdict(),
            Held::Lent { .. } => self.guard().verdict(),
        }
    }

    /// Until when the verdict stays `Held` if nothing more is heard.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        match &self.inner.held {
            Held::Narrowed { outer, condition } => outer.valid_until().min(condition.valid_until()),
            Held::Lent { .. } => self.guard().valid_until(),
        }
    }

    /// Cancelled when the work is to stop: the target goes to another node, is paused or gone, this node drains, or the
    /// lease is lost. In the last case the task is dropped at once, else after a short while.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Waits until the next cycle may begin: at once while the lease is held, and through any uncertainty until it is
    /// confirmed again. `false` when there is no next cycle; the task should end.
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

    /// Rests between two cycles, on the fleet's clock; shorter when the work is to stop.
    pub async fn rest(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.inner.stop.cancelled() => {}
            () = self.inner.clock.sleep(pause) => {}
        }
    }

    /// Notes how the task ended, for whoever takes the guard back.
    pub(super) fn note(&self, ended: Ended) {
        if let Held::Lent { ended: noted, .. } = &self.inner.held {
            // Only the one wrapper around the task calls this, once.
            let _first = noted.set(ended);
        }
    }
}
