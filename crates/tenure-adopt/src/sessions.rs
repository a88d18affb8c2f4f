//! Adopts sessions of other programs: hashes like `session:<id>` with a field for the time since when no client is
//! connected.
//!
//! Such programs find orphans by a scan of all keys. Here, periodic passes build an index beside the hashes (a sorted
//! set of ids by disconnect time), and a reaper uses it to delete orphans. The programs need no change and may write at
//! any time: every step is one script that decides by the session's current content.
//!
//! Other programs may maintain the same index. So a second sorted set records the entries that we added, with their
//! scores. An entry whose score differs belongs to another program and is never changed, except that it is removed
//! together with its session.
//!
//! An interrupted pass starts from the beginning: a scan cursor is invalid after a restart, and an indexed session
//! costs only one check.
//!
//! A value that is not a time in the unit is never interpreted as one, keys stay in the slot of the sessions, and
//! nothing is written on a replica.

#[cfg(feature = "daemon")]
mod daemon;
#[cfg(feature = "daemon")]
mod meters;
#[cfg(feature = "daemon")]
mod progress;
mod reap;
mod report;
mod step;
mod template;
mod undo;
mod walk;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::settling::MAX_GAP;
use tenure_valkey::connection::Connection;

use crate::pattern::KeyPattern;
use crate::slot::{slot, tag_in};
use crate::{PAGE, text};

#[cfg(feature = "daemon")]
pub use daemon::{LAST_PAGE, ReapedListener, SessionsDaemon};
#[cfg(feature = "daemon")]
pub use progress::{IndexProgress, PageInFlight};
pub use reap::{MIN_MAX_AGE, ReapListener, ReapSettings, Reaper};
pub use report::{
    Comparison, Difference, DifferenceKind, Doomed, IndexReport, ReapNotice, ReapReport, SessionCounts, UndoReport,
};
pub use template::KeyTemplate;
pub use undo::UndoListener;
pub use walk::{WalkListener, WalkNotice};

use step::Steps;

/// The largest page of a scan.
const SCAN_PAGE: u64 = 500;
/// The smallest page of a scan.
const SMALLEST_PAGE: u64 = 10;
/// The default rate, in keys per second.
pub const DEFAULT_RATE: u64 = 20_000;

/// The time unit of the field and of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds since 1970, optionally with a fraction.
    #[default]
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
}

impl Unit {
    /// Parses `s` or `ms`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(unit: &str) -> Result<Self> {
        match unit {
            "s" => Ok(Self::Seconds),
            "ms" => Ok(Self::Milliseconds),
            _ => Err(Error::invalid(format!("{unit:?} is not a time unit; write s or ms"))),
        }
    }

    /// Its length in microseconds.
    pub(super) fn micros(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1_000,
        }
    }

    /// Formats a time in this unit, with its fraction.
    pub(super) fn of_micros(self, micros: u64) -> String {
        let (unit, digits) = match self {
            Self::Seconds => (1_000_000, 6),
            Self::Milliseconds => (1_000, 3),
        };
        format!("{}.{:0digits$}", micros / unit, micros % unit)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
        })
    }
}

/// The sessions and their index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The pattern of the session keys.
    pub pattern: KeyPattern,
    /// The field with the disconnect time; missing, empty or `0` while the session is active.
    pub field: String,
    /// The index, if other programs use it as well. `None`: an index of our own.
    pub index: Option<String>,
    /// The unit of the field and of the index.
    pub unit: Unit,
    /// The maximum rate, in keys per second. A lower rate loads the store less and takes longer.
    pub rate: u64,
}

impl SessionSettings {
    /// The defaults for a pattern and a field.
    ///
    /// # Errors
    /// `Invalid` for a pattern without exactly one placeholder, or an empty field.
    pub fn new(pattern: &str, field: &str) -> Result<Self> {
        if field.is_empty() {
            let message = "the name of the field is empty; write the field with the disconnect time of a session";
            return Err(Error::invalid(message));
        }
        Ok(Self {
            pattern: KeyPattern::parse(pattern)?,
            field: field.to_owned(),
            index: None,
            unit: Unit::default(),
            rate: DEFAULT_RATE,
        })
    }

    /// The page size: the keys of a tenth of a second, within bounds.
    fn page(&self) -> u64 {
        (self.rate / 10).clamp(SMALLEST_PAGE, SCAN_PAGE)
    }

    /// The pause after this many keys.
    fn rest(&self, keys: u64) -> Duration {
        Duration::from_micros(keys.saturating_mul(1_000_000) / self.rate.max(1))
    }
}

/// The keys of an index.
#[derive(Debug, Clone)]
struct IndexKeys {
    /// The index itself.
    index: Vec<u8>,
    /// The entries that we added.
    added: Vec<u8>,
    /// The pass counters.
    notes: Vec<u8>,
    /// The prefix of the markers, by which a reaper reads back a page whose reply was lost.
    marker: String,
}

impl IndexKeys {
    fn of(settings: &SessionSettings) -> Self {
        let pattern = String::from_utf8_lossy(&settings.pattern.key("*")).into_owned();
        // Our keys use the slot of the index, so that one step can touch both.
        let named = settings.index.as_deref().unwrap_or(&pattern);
        let tag = tag_in(named.as_bytes()).unwrap_or(named.as_bytes());
        let tag = String::from_utf8_lossy(tag);
        let base = match &settings.index {
            None => format!("tenure:adopt:{{{tag}}}:sessions:{pattern}"),
            Some(index) => format!("tenure:adopt:{{{tag}}}:sessions:{pattern}:{index}"),
        };
        Self {
            index: settings
                .index
                .as_ref()
                .map_or_else(|| format!("{base}:index").into(), |index| index.clone().into()),
            added: format!("{base}:added").into(),
            notes: format!("{base}:passes").into(),
            marker: format!("{base}:reaper:"),
        }
    }
}

/// The sessions of another program and their index.
pub struct Sessions {
    steps: Steps,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("settings", &self.steps.settings)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Uses this connection. No I/O.
    ///
    /// # Errors
    /// `Invalid` for a rate of zero or an empty index name.
    pub fn new(connection: Connection, settings: SessionSettings) -> Result<Self> {
        Ok(Self {
            steps: Steps::new(connection, settings)?,
            stop: Arc::default(),
        })
    }

    /// Sets a flag that ends passes early, also those of a reaper of these sessions: no further step starts once it is
    /// set.
    #[must_use]
    pub fn with_stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The key of the index.
    #[must_use]
    pub fn index_key(&self) -> &[u8] {
        &self.steps.keys.index
    }
}

/// Rejects keys in different cluster slots, which one atomic step cannot access.
///
/// # Errors
/// `Misconfigured`, with the reason.
fn check_slots(keys: &IndexKeys, settings: &SessionSettings, templates: &[&KeyTemplate]) -> Result<()> {
    let ours = slot(&keys.index);
    let pinned = |key: &dyn Fn(&str) -> Vec<u8>| slot(&key("a")) == ours && slot(&key("b")) == ours;
    let strays = templates
        .iter()
        .filter(|template| !pinned(&|id| template.key(id)))
        .map(|template| template.to_string());
    let stray = if pinned(&|id| settings.pattern.key(id)) {
        strays.into_iter().next()
    } else {
        Some(settings.pattern.to_string())
    };
    let Some(stray) = stray else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Misconfigured,
        format!(
            "the store is a cluster, where one step can only look at keys of one slot, but the index {:?} is in slot {ours} \
             and the keys {stray:?} are not all there; give all of them the same hash tag, like {{app}}:session:*",
            text(&keys.index)
        ),
    ))
}

/// A longer silence of the store counts as an outage.
const SILENCE: Duration = MAX_GAP;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pattern: &str, index: Option<&str>) -> SessionSettings {
        SessionSettings {
            index: index.map(str::to_owned),
            ..SessionSettings::new(pattern, "last_disconnect").unwrap()
        }
    }

    #[test]
    fn times_keep_their_fraction_in_both_units() {
        assert_eq!(Unit::Seconds.of_micros(1_763_706_000_000_042), "1763706000.000042");
        assert_eq!(Unit::Milliseconds.of_micros(1_763_706_000_000_042), "1763706000000.042");
        assert!(Unit::parse("m").unwrap_err().to_string().contains("s or ms"));
    }

    #[test]
    fn our_keys_use_the_slot_of_the_index() {
        for (pattern, index) in [
            ("session:*", None),
            ("{app}:session:*", None),
            ("session:*", Some("disconnected_sessions")),
            ("{app}:session:*", Some("{app}:disconnected")),
        ] {
            let keys = IndexKeys::of(&settings(pattern, index));
            for key in [&keys.added, &keys.notes, &keys.marker.clone().into_bytes()] {
                assert_eq!(slot(key), slot(&keys.index), "{pattern} {index:?}");
            }
        }
        let (one, other) = (settings("session:*", Some("i")), settings("room:*", Some("i")));
        assert_ne!(
            IndexKeys::of(&one).added,
            IndexKeys::of(&other).added,
            "added entries are stored per pattern"
        );
    }

    #[test]
    fn cluster_requires_all_keys_in_one_slot() {
        let checked = |pattern: &str, index: Option<&str>, template: &str| {
            let settings = settings(pattern, index);
            let template = KeyTemplate::parse(template).unwrap();
            check_slots(&IndexKeys::of(&settings), &settings, &[&template])
        };
        assert!(checked("{app}:session:*", None, "{app}:refs:{id}").is_ok());
        assert!(checked("{app}:session:*", Some("{app}:i"), "refs:{app}:{field:x}").is_ok());
        for (pattern, index, template) in [
            ("session:*", None, "{app}:refs:{id}"),
            ("{app}:session:*", Some("i"), "{app}:refs:{id}"),
            ("{app}:session:*", None, "refs:{id}"),
            ("{app}:session:*", None, "{b}:refs:{id}"),
        ] {
            let error = checked(pattern, index, template).unwrap_err().to_string();
            assert!(error.contains("hash tag"), "{error}");
        }
    }

    #[test]
    fn rate_limits_pages_and_pauses() {
        let at = |rate| SessionSettings {
            rate,
            ..settings("session:*", None)
        };
        for (rate, page) in [(1, 10), (1_000, 100), (1_000_000, 500)] {
            assert_eq!(at(rate).page(), page);
        }
        assert_eq!(at(1_000).rest(100), Duration::from_millis(100));
        assert_eq!(at(10).rest(10), Duration::from_secs(1));
    }
}
