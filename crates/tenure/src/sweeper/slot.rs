//! The schedule of one group in one sweep, and the state kept between visits.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::Group;
use tokio::sync::Mutex;

/// The due time during a visit: later than any other.
const TAKEN: Mono = Mono::from_origin(Duration::MAX);

/// A group that is due.
pub(super) struct Due<W> {
    pub(super) group: Group,
    pub(super) work: Arc<Mutex<W>>,
    /// Whether it takes a slow slot, as after a slow visit.
    pub(super) slow: bool,
}

/// One group in one sweep.
pub(super) struct Slot<W> {
    due_at: Mono,
    /// Whether it is queued or being visited.
    visited: bool,
    failing: bool,
    slow: bool,
    /// Locked during a visit. Each group has its own lock, so that a panic affects no other group.
    work: Arc<Mutex<W>>,
}

impl<W: Default> Slot<W> {
    pub(super) fn due_at(due_at: Mono) -> Self {
        Self {
            due_at,
            visited: false,
            failing: false,
            slow: false,
            work: Arc::default(),
        }
    }

    /// Makes it due at `at` or earlier. Returns whether that changed the due time.
    pub(super) fn at_latest(&mut self, at: Mono) -> bool {
        let earlier = at < self.due_at;
        self.due_at = self.due_at.min(at);
        earlier
    }

    /// Starts a visit if it is due and not visited yet. A touch during the visit keeps its effect; the end of the visit
    /// only postpones.
    pub(super) fn take(&mut self, group: &Group, now: Mono) -> Option<Due<W>> {
        (self.due_at <= now && !self.visited).then(|| {
            self.due_at = TAKEN;
            self.visited = true;
            Due {
                group: group.clone(),
                work: Arc::clone(&self.work),
                slow: self.slow,
            }
        })
    }

    /// Ends a visit. Returns when the next one is due.
    pub(super) fn done(&mut self, due_at: Mono, failed: bool, slow: bool) -> Mono {
        self.at_latest(due_at);
        (self.visited, self.failing, self.slow) = (false, failed, slow);
        self.due_at
    }

    /// Whether it is queued or being visited.
    pub(super) fn is_taken(&self) -> bool {
        self.visited
    }

    /// Whether the last visit failed.
    pub(super) fn failing(&self) -> bool {
        self.failing
    }

    /// The time until it is due; `None` during a visit.
    pub(super) fn due_in(&self, now: Mono) -> Option<Duration> {
        (!self.visited).then(|| self.due_at.since(now))
    }
}
