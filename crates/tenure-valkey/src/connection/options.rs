//! How a connection behaves, and what it has to be allowed to do.

use std::time::Duration;

/// How a connection behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// How long one request may take before its outcome counts as unknown. Longer survives slower networks, and tells
    /// later that the store is away.
    pub request_timeout: Duration,
    /// How long resolving, connecting and the first exchange may take together.
    pub connect_timeout: Duration,
    /// How long a connection may be idle before it is asked whether it still works. Shorter finds a dead one sooner.
    pub ping_interval: Duration,
    /// How many requests may be in flight; more fail at once. Bounds memory while the store is slow.
    pub in_flight: usize,
    /// Take the scripts' time from the key `tenure:test:now` (µs) and leave not-after times to the caller.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    pub test_clock: bool,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(1),
            in_flight: 4096,
            #[cfg(feature = "test-clock")]
            test_clock: false,
        }
    }
}

impl ConnectionOptions {
    /// Whether the store's time is a test's.
    pub(crate) fn on_test_clock(&self) -> bool {
        #[cfg(feature = "test-clock")]
        return self.test_clock;
        #[cfg(not(feature = "test-clock"))]
        false
    }
}

/// A command that has to be allowed, on a key like those it is used on. Asked for at each connect, so that a missing
/// permission shows there and not halfway through a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    /// The command.
    pub(crate) command: &'static str,
    /// A key that it is used on.
    pub(crate) key: &'static str,
}
