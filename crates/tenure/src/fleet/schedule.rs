//! When to repeat a periodic call: at an interval, earlier on demand, later after a failure.

use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter};

/// Shortest time between two starts.
const GAP: Duration = Duration::from_millis(100);
/// Longest pause after failures.
const MAX_REST: Duration = Duration::from_secs(2);

/// The schedule of one periodic call.
pub(super) struct Schedule {
    next: Option<Mono>,
    begun: Option<Mono>,
    in_flight: bool,
    /// Shortest time between two starts.
    gap: Duration,
    failed: u32,
}

impl Schedule {
    /// A schedule that is due now.
    pub(super) fn new() -> Self {
        Self {
            next: Some(Mono::default()),
            begun: None,
            in_flight: false,
            gap: GAP,
            failed: 0,
        }
    }

    /// A schedule that is due on demand only.
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

    /// Makes it due now. A call in flight may have started before the reason for this one, so it is repeated.
    pub(super) fn want(&mut self, now: Mono) {
        let earliest = self.begun.map_or(now, |begun| now.max(begun + self.gap));
        self.want_at(earliest);
    }

    /// Makes it due at the given time or earlier.
    pub(super) fn want_at(&mut self, at: Mono) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Starts it if it is due. Returns whether it was.
    pub(super) fn begin(&mut self, now: Mono) -> bool {
        if self.in_flight || self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.next = None;
        self.begun = Some(now);
        self.in_flight = true;
        true
    }

    /// Records a success; it is due again after `interval` at the latest.
    pub(super) fn done(&mut self, now: Mono, interval: Duration) {
        self.in_flight = false;
        self.failed = 0;
        let earliest = self.begun.map_or(now, |begun| begun + self.gap);
        self.want_at((now + interval).max(earliest));
    }

    /// Records a failure. Returns whether it is the first in a row.
    pub(super) fn failed(&mut self, now: Mono, clock: &dyn Clock) -> bool {
        self.in_flight = false;
        self.failed = self.failed.saturating_add(1);
        let rest = (GAP * 2u32.saturating_pow(self.failed.min(8))).min(MAX_REST);
        self.next = Some(now + jitter(clock, rest, 25));
        self.failed == 1
    }

    /// When it is due; `None` while in flight or not wanted.
    pub(super) fn due(&self) -> Option<Mono> {
        self.next.filter(|_| !self.in_flight)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failed > 0
    }
}
