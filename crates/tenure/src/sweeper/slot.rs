//! When a sweep visits a group next, and what it keeps from visit to visit.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::Group;
use tokio::sync::Mutex;

/// Later than anything: a visit is under way.
const TAKEN: Mono = Mono::from_origin(Duration::MAX);

/// A group whose time has come.
pub(super) struct Due<W> {
    pub(super) group: Group,
    pub(super) work: Arc<Mutex<W>>,
    /// Whether its last visit was slow.
    pub(super) slow: bool,
}

/// One group in one sweep.
pub(super) struct Slot<W> {
    due_at: Mono,
    /// Whether a visit is under way or waits for its place.
    visited: bool,
    failing: bool,
    slow: bool,
    /// Locked for a whole visit; its own lock, so that a panic in one visit costs no other group anything.
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

    /// Comes at that time, if it would not before. Answers whether that made it earlier.
    pub(super) fn at_latest(&mut self, at: Mono) -> bool {
        let earlier = at < self.due_at;
        self.due_at = self.due_at.min(at);
        earlier
    }

    /// Begins a visit, if its time has come and none is under way. A touch during the visit counts; the visit itself only ever
    /// makes the next one later.
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

    /// A visit is over. Answers when the next one is due.
    pub(super) fn done(&mut self, due_at: Mono, failed: bool, slow: bool) -> Mono {
        self.at_latest(due_at);
        (self.visited, self.failing, self.slow) = (false, failed, slow);
        self.due_at
    }

    /// Whether a visit is under way or waits for its place.
    pub(super) fn is_taken(&self) -> bool {
        self.visited
    }

    /// Whether the last visit failed.
    pub(super) fn failing(&self) -> bool {
        self.failing
    }

    /// How long until its time has come. While a visit is under way its end tells.
    pub(super) fn due_in(&self, now: Mono) -> Option<Duration> {
        (!self.visited).then(|| self.due_at.since(now))
    }
}
