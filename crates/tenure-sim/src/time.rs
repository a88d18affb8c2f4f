//! World time: what an observer outside all machines would read. Library code never sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An instant of world time, in nanoseconds since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct At(pub u64);

impl At {
    /// The time since `earlier`, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for At {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>4}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// A duration in whole nanoseconds.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of world time. Clones share state.
#[derive(Debug, Clone, Default)]
pub struct WorldClock(Arc<AtomicU64>);

impl WorldClock {
    /// The current time.
    #[must_use]
    pub fn now(&self) -> At {
        At(self.0.load(Ordering::Relaxed))
    }

    /// Advances the clock; it never goes back.
    pub fn set(&self, now: At) {
        self.0.fetch_max(now.0, Ordering::Relaxed);
    }
}

/// How fast a machine's clock runs, in parts per million above (or below) the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drift(pub i64);

impl Drift {
    /// What the clock shows after this much world time. A simulation lasts less than a day, so nothing overflows.
    #[must_use]
    pub fn local(self, world: u64) -> u64 {
        let whole = i64::try_from(world).unwrap_or(i64::MAX);
        // In two parts, because the product of nanoseconds and parts per million is large.
        let (mega, rest) = (whole / 1_000_000, whole % 1_000_000);
        world.saturating_add_signed(mega * self.0 + rest * self.0 / 1_000_000)
    }

    /// The least world time after which the clock shows at least this much.
    #[must_use]
    pub fn world(self, local: u64) -> u64 {
        // The clocks differ by at most a few percent, so a correction step or two finds it.
        let mut world = local;
        loop {
            let shown = self.local(world);
            if shown < local {
                world += (local - shown).max(1);
            } else if world > 0 && self.local(world - 1) >= local {
                world -= (shown - local).max(1);
            } else {
                return world;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_inverts_to_the_first_instant_of_a_time() {
        for drift in [Drift(0), Drift(-20_000), Drift(20_000), Drift(137)] {
            for local in [0, 1, 999, 1_000_000_007, 123_456_789_012] {
                let world = drift.world(local);
                assert!(drift.local(world) >= local, "{drift:?} {local}");
                assert!(world == 0 || drift.local(world - 1) < local, "{drift:?} {local}");
            }
        }
    }
}
