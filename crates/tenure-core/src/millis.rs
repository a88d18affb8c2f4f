//! Durations in whole milliseconds, for fields named `…_ms`.
//!
//! [`down()`] and [`up()`] are functions. The modules of the same names are their serde forms for `Duration` and
//! `Option<Duration>`.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whole milliseconds, rounded down: a client may stop early, never late.
#[must_use]
pub fn down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up: a caller does not retry too early.
#[must_use]
pub fn up(duration: Duration) -> u64 {
    down(duration.saturating_add(Duration::from_nanos(999_999)))
}

/// A duration, or an optional one.
pub trait Span: Sized {
    /// The type of its milliseconds.
    type Millis: Serialize + DeserializeOwned;
    /// Converts to milliseconds.
    fn count(&self, round: fn(Duration) -> u64) -> Self::Millis;
    /// Converts from milliseconds.
    fn of(millis: Self::Millis) -> Self;
}

impl Span for Duration {
    type Millis = u64;
    fn count(&self, round: fn(Duration) -> u64) -> u64 {
        round(*self)
    }
    fn of(millis: u64) -> Self {
        Self::from_millis(millis)
    }
}

impl Span for Option<Duration> {
    type Millis = Option<u64>;
    fn count(&self, round: fn(Duration) -> u64) -> Option<u64> {
        self.map(round)
    }
    fn of(millis: Option<u64>) -> Self {
        millis.map(Duration::from_millis)
    }
}

macro_rules! serde_module {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub mod $name {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::Span;

            /// Serializes the milliseconds.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize<T: Span, S: Serializer>(span: &T, serializer: S) -> Result<S::Ok, S::Error> {
                span.count(super::$name).serialize(serializer)
            }

            /// Deserializes the milliseconds.
            ///
            /// # Errors
            /// Those of the deserializer.
            pub fn deserialize<'de, T: Span, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
                T::Millis::deserialize(deserializer).map(T::of)
            }
        }
    };
}

serde_module!(
    /// Serde form for a remaining time.
    down
);
serde_module!(
    /// Serde form for a wait.
    up
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_to_the_safe_side() {
        let duration = Duration::from_micros(1_001);
        assert_eq!((down(duration), up(duration)), (1, 2));
        assert_eq!((down(Duration::MAX), up(Duration::MAX)), (u64::MAX, u64::MAX));
    }
}
