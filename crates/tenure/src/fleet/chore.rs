//! When to do something again that is done every now and then, sooner when there is reason to, and later when it fails.

use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter};

/// The least time between two beginnings, whatever calls for it.
const GAP: Duration = Duration::from_millis(100);
/// The longest rest after failures.
const MAX_REST: Duration = Duration::from_secs(2);

/// One such thing.
pub(super) struct Chore {
    next: Option<Mono>,
    begun: Option<Mono>,
    is_flying: bool,
    /// The least time between two beginnings.
    gap: Duration,
    failed: u32,
}

impl Chore {
    /// It is due at once.
    pub(super) fn new() -> Self {
        Self {
            next: Some(Mono::default()),
            begun: None,
            is_flying: false,
            gap: GAP,
            failed: 0,
        }
    }

    /// It is due when it is called for.
    pub(super) fn later() -> Self {
        Self {
            next: None,
            ..Self::new()
        }
    }

    pub(super) fn with_gap(self, gap: Duration) -> Self {
        Self { gap, ..self }
    }

    pub(super) fn set_gap(&mut self, gap: Duration) {
        self.gap = gap;
    }

    /// It is wanted now. What is under way may have begun before the reason for it, so it is done once more then.
    pub(super) fn want(&mut self, now: Mono) {
        let earliest = self.begun.map_or(now, |begun| now.max(begun + self.gap));
        self.want_at(earliest);
    }

    /// It is wanted at that time at the latest.
    pub(super) fn want_at(&mut self, at: Mono) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Begins it, when it is due. Whether it was.
    pub(super) fn begin(&mut self, now: Mono) -> bool {
        if self.is_flying || self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.next = None;
        self.begun = Some(now);
        self.is_flying = true;
        true
    }

    /// It went well, and is due again after `interval` at the latest.
    pub(super) fn done(&mut self, now: Mono, interval: Duration) {
        self.is_flying = false;
        self.failed = 0;
        let earliest = self.begun.map_or(now, |begun| begun + self.gap);
        self.want_at((now + interval).max(earliest));
    }

    /// It failed. Whether that is news.
    pub(super) fn failed(&mut self, now: Mono, clock: &dyn Clock) -> bool {
        self.is_flying = false;
        self.failed = self.failed.saturating_add(1);
        let rest = (GAP * 2u32.saturating_pow(self.failed.min(8))).min(MAX_REST);
        self.next = Some(now + jitter(clock, rest, 25));
        self.failed == 1
    }

    /// When it is due; `None` while it is under way, or when nothing calls for it.
    pub(super) fn due(&self) -> Option<Mono> {
        self.next.filter(|_| !self.is_flying)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failed > 0
    }
}
