//! Durations in whole milliseconds: how they travel, in fields named `…_ms`.
//!
//! [`down()`] and [`up()`] are functions. The modules of the same names are their serde forms, for a `Duration` and an
//! `Option<Duration>`.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// In whole milliseconds, rounded down: a client may stop early, never late.
#[must_use]
pub fn down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// In whole milliseconds, rounded up: a caller that retries after it is not too early.
#[must_use]
pub fn up(duration: Duration) -> u64 {
    down(duration.saturating_add(Duration::from_nanos(999_999)))
}

/// A duration that may be left out, or that may not.
pub trait Span: Sized {
    /// Its number of milliseconds.
    type Millis: Serialize + DeserializeOwned;
    /// As a number.
    fn count(&self, round: fn(Duration) -> u64) -> Self::Millis;
    /// From a number.
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

            /// Writes the number.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize<T: Span, S: Serializer>(span: &T, serializer: S) -> Result<S::Ok, S::Error> {
                span.count(super::$name).serialize(serializer)
            }

            /// Reads the number.
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
    /// For serde: how long something lasts.
    down
);
serde_module!(
    /// For serde: how long to wait.
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
