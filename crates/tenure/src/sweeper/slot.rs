//! When a sweep visits a group next, and what it keeps from visit to visit.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::Group;
use tokio::sync::Mutex;

/// Later than anything: a visit is under way.
const TAKEN: Mono = Mono::from_origin(Duration::MAX);

/// A group whose time has come.
pub(super) type Due<W> = (Group, Arc<Mutex<W>>);

/// One group in one sweep.
pub(super) struct Slot<W> {
    due_at: Mono,
    failing: bool,
    /// Locked for a whole visit; its own lock, so that a panic in one visit costs no other group anything.
    work: Arc<Mutex<W>>,
}

impl<W: Default> Slot<W> {
    pub(super) fn due_at(due_at: Mono) -> Self {
        Self {
            due_at,
            failing: false,
            work: Arc::default(),
        }
    }

    /// Comes at that time, if it would not before. Answers whether that made it earlier.
    pub(super) fn at_latest(&mut self, at: Mono) -> bool {
        let earlier = at < self.due_at;
        self.due_at = self.due_at.min(at);
        earlier
    }

    /// Begins a visit, if its time has come. What makes it due meanwhile counts; the visit itself only ever makes it later.
    pub(super) fn take(&mut self, now: Mono) -> Option<Arc<Mutex<W>>> {
        (self.due_at <= now).then(|| {
            self.due_at = TAKEN;
            Arc::clone(&self.work)
        })
    }

    /// A visit is over.
    pub(super) fn done(&mut self, due_at: Mono, failed: bool) {
        self.at_latest(due_at);
        self.failing = failed;
    }

    /// Whether a visit is under way, or ended in a panic.
    pub(super) fn is_taken(&self) -> bool {
        self.due_at == TAKEN
    }

    /// Whether the last visit failed.
    pub(super) fn failing(&self) -> bool {
        self.failing
    }

    pub(super) fn due_in(&self, now: Mono) -> Duration {
        self.due_at.since(now)
    }
}
