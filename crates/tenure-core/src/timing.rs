//! The timing of a membership: ttl, beat interval, request timeout and margin, and the check that they fit together.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::time::show_duration;

/// The minimum ttl.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The default ttl of a join.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The default maximum ttl.
pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(120);

/// The timing of one membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the store waits for a beat before the tenure lapses.
    pub ttl: Duration,
    /// The time between two beats. A longer one sends fewer beats and tolerates fewer lost ones.
    pub interval: Duration,
    /// The time after which the outcome of a request counts as unknown.
    pub request_timeout: Duration,
    /// How long before the store's deadline the local verdict stops being `held`; covers clock drift.
    pub margin: Duration,
}

impl Timing {
    /// The default timing for a ttl: interval ttl/3, request timeout min(500 ms, ttl/6), margin ttl/12.
    #[must_use]
    pub fn for_ttl(ttl: Duration) -> Self {
        Self {
            ttl,
            interval: ttl / 3,
            request_timeout: (ttl / 6).min(Duration::from_millis(500)),
            margin: ttl / 12,
        }
    }

    /// Checks that two missed beats, a request timeout and the margin fit into the ttl.
    ///
    /// # Errors
    /// `Misconfigured`, with the numbers and the value to change.
    pub fn check(self, max_ttl: Duration) -> Result<Self, Error> {
        check_ttl(self.ttl, max_ttl)?;
        let needed = self.interval * 2 + self.request_timeout + self.margin;
        if self.interval.is_zero() || needed > self.ttl {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "two missed beats (2 x {}) + request timeout ({}) + margin ({}) = {} must fit into the ttl of {}: raise the ttl or shorten the beat interval",
                    show_duration(self.interval),
                    show_duration(self.request_timeout),
                    show_duration(self.margin),
                    show_duration(needed),
                    show_duration(self.ttl),
                ),
            ));
        }
        Ok(self)
    }
}

/// Checks that a ttl is within `1s..=max_ttl`.
///
/// # Errors
/// `Invalid`, with the numbers.
pub fn check_ttl(ttl: Duration, max_ttl: Duration) -> Result<Duration, Error> {
    if ttl < MIN_TTL || ttl > max_ttl {
        return Err(Error::invalid(format!(
            "the ttl {} is outside {} to {} (max_ttl)",
            show_duration(ttl),
            show_duration(MIN_TTL),
            show_duration(max_ttl),
        )));
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn default_timing_is_valid_at_every_ttl() {
        for ttl in [1000, 1001, 3000, 30_000, 120_000] {
            Timing::for_ttl(ms(ttl)).check(DEFAULT_MAX_TTL).unwrap();
        }
    }

    #[test]
    fn impossible_timing_error_has_the_numbers() {
        let base = Timing::for_ttl(ms(15_000));
        for (timing, must_say) in [
            (
                Timing {
                    interval: ms(15_000),
                    ..base
                },
                "2 x 15s",
            ),
            (
                Timing {
                    interval: ms(7_500),
                    ..base
                },
                "2 x 7500ms",
            ),
            (
                Timing {
                    interval: Duration::ZERO,
                    ..base
                },
                "2 x 0ms",
            ),
            (
                Timing {
                    request_timeout: ms(5_000),
                    ..base
                },
                "request timeout (5s)",
            ),
            (
                Timing {
                    margin: ms(6_000),
                    ..base
                },
                "margin (6s)",
            ),
        ] {
            let error = timing.check(DEFAULT_MAX_TTL).unwrap_err().to_string();
            assert!(error.contains(must_say) && error.contains("ttl of 15s"), "{error}");
        }
        assert!(
            Timing::for_ttl(ms(999))
                .check(DEFAULT_MAX_TTL)
                .unwrap_err()
                .to_string()
                .contains("999ms")
        );
        assert!(
            Timing::for_ttl(ms(121_000))
                .check(DEFAULT_MAX_TTL)
                .unwrap_err()
                .to_string()
                .contains("2m (max_ttl)")
        );
    }
}
