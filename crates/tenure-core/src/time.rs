//! Store time: the clock that decides. Only a store creates these instants, and only they end a tenure.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// An instant of the store's clock, in microseconds since the Unix epoch; RFC 3339 on the wire.
///
/// A type of its own, so that it cannot be mixed with the local clock ([`crate::clock::Mono`]), which can only make a
/// client stop earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreTime(u64);

impl StoreTime {
    /// The epoch; means "never" in stored fields.
    pub const ZERO: Self = Self(0);

    /// From microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved back, at most to the epoch.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

/// A duration in whole microseconds, the resolution of store time.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Add<Duration> for StoreTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }
}

impl fmt::Display for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_microsecond(micros) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreTime({self})")
    }
}

impl FromStr for StoreTime {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::invalid(format!(
                "{text:?} is not a time; write RFC 3339 in UTC, like 2026-01-02T03:04:05.678Z"
            ))
        };
        let at: jiff::Timestamp = text.parse().map_err(|_| bad())?;
        Ok(Self(u64::try_from(at.as_microsecond()).map_err(|_| bad())?))
    }
}

impl TryFrom<String> for StoreTime {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<StoreTime> for String {
    fn from(at: StoreTime) -> String {
        at.to_string()
    }
}

/// Parses a duration: `500ms`, `10s`, `5m`, `2h`, `1m30s`.
///
/// # Errors
/// `Invalid`, with the text and the format.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let bad = || {
        Error::invalid(format!(
            "{text:?} is not a duration; write a number with its unit, like 500ms, 10s, 5m or 1m30s"
        ))
    };
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let millis = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        rest = &rest[unit..];
        let part = Duration::from_millis(number.checked_mul(millis).ok_or_else(bad)?);
        total = total.checked_add(part).ok_or_else(bad)?;
    }
    Ok(total)
}

/// Formats a duration for [`parse_duration`], in the largest exact unit.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= size && ms.is_multiple_of(size) {
            return format!("{}{unit}", ms / size);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_time_is_rfc_3339_with_microseconds() {
        let at = StoreTime::from_micros(1_763_676_800_000_042);
        assert_eq!(at.to_string(), "2025-11-20T22:13:20.000042Z");
        assert_eq!(at.to_string().parse::<StoreTime>().unwrap(), at);
        assert!(
            "yesterday"
                .parse::<StoreTime>()
                .unwrap_err()
                .to_string()
                .contains("RFC 3339")
        );
        assert!("1960-01-01T00:00:00Z".parse::<StoreTime>().is_err());
    }

    #[test]
    fn durations_parse_with_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for bad in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "10sec",
            "99999999999999999999s",
            "999999999999999999d",
            "10S",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_secs(120)), "2m");
        assert_eq!(show_duration(Duration::from_millis(1500)), "1500ms");
    }
}
