//! Test support for this crate: virtual time, recorded telemetry, and a store with injected faults.

mod beats;
mod faulty;
mod telemetry;

use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};

pub(crate) use beats::{beat_pulse_of, served};
pub(crate) use faulty::{Fault, Faulty, Verb};
pub(crate) use telemetry::Telemetry;

/// 2026-01-01T00:00:00Z.
pub(crate) const START: u64 = 1_767_225_600_000_000;

/// Runs all tasks as far as they get without time passing.
pub(crate) async fn settle() {
    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
}

/// Advances virtual time, stopping at every scheduled wake-up.
pub(crate) async fn pass(clock: &ManualClock, time: Duration) {
    let end = clock.mono() + time;
    loop {
        settle().await;
        let left = end.since(clock.mono());
        if left.is_zero() {
            return;
        }
        let step = clock
            .next_wake()
            .unwrap_or(left)
            .max(Duration::from_micros(1))
            .min(left);
        clock.advance(step);
    }
}

/// Advances virtual time until a condition holds; panics after `limit`.
#[track_caller]
pub(crate) fn pass_until<'a>(
    clock: &'a ManualClock,
    what: &'a str,
    limit: Duration,
    mut condition: impl FnMut() -> bool + 'a,
) -> impl Future<Output = ()> + 'a {
    let end = clock.mono() + limit;
    async move {
        settle().await;
        while !condition() {
            let left = end.since(clock.mono());
            assert!(
                !left.is_zero(),
                "waited {limit:?} of virtual time without success until {what}"
            );
            let step = clock
                .next_wake()
                .unwrap_or(left)
                .max(Duration::from_micros(1))
                .min(left);
            clock.advance(step);
            settle().await;
        }
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
