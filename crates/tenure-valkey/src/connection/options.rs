//! Options of a connection, and the permissions it checks.

use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::escape::server_words;

/// Timeouts and limits of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// How long one request may take before its outcome counts as unknown. A longer timeout tolerates slower networks
    /// and reports an outage later.
    pub request_timeout: Duration,
    /// The time limit for DNS resolution, connect and handshake together.
    pub connect_timeout: Duration,
    /// How long a connection may be idle before it is pinged. A shorter interval detects a dead connection sooner.
    pub ping_interval: Duration,
    /// The maximum number of requests in flight; the next request fails. Bounds memory while the store is slow.
    pub in_flight: usize,
    /// Scripts take their time from the key `tenure:test:now` (µs) and leave not-after times to the caller.
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
    /// Whether the store's time is set by a test.
    pub(crate) fn on_test_clock(&self) -> bool {
        #[cfg(feature = "test-clock")]
        return self.test_clock;
        #[cfg(not(feature = "test-clock"))]
        false
    }
}

/// What a connection must find before it carries a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// The commands that the user may run.
    pub(crate) commands: Vec<Need>,
    /// The mark of the data, if there is any.
    pub(crate) mark: Option<Mark>,
}

/// A field of a hash that names the format of the data. Data without it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) key: &'static str,
    pub(crate) field: &'static str,
    /// What this program reads and writes.
    pub(crate) value: &'static str,
}

impl Mark {
    /// Refuses data of another format. A field without text is another format too.
    ///
    /// # Errors
    /// `Misconfigured`, with nothing changed.
    pub(crate) fn check(&self, found: Option<&str>) -> Result<()> {
        match found {
            None => Ok(()),
            Some(found) if found == self.value => Ok(()),
            Some(found) => Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the data of this store has format {}, and this program knows format {} only: another version of \
                     Tenure wrote it; nothing was changed; run that version, or name an empty database",
                    server_words(found),
                    self.value
                ),
            )),
        }
    }
}

/// A command that must be allowed, on a key like those it is used on. It is checked at each connect, so a missing
/// permission shows there and not in the middle of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    /// The command.
    pub(crate) command: &'static str,
    /// A sample key for it.
    pub(crate) key: &'static str,
}
