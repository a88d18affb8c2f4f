//! Sessions of other programs: hashes like `session:<id>` with a field that says since when nobody is connected.
//!
//! Such programs find orphans by scanning all their keys. Here an index (a sorted set, id by the time of disconnecting) is
//! built beside their hashes, page by page and again and again, and orphans are reaped by it. The programs need not
//! change, and may write while it runs: every step is one script that decides by what the session says at that moment.
//!
//! The index may be shared with programs that keep it themselves. Therefore a second sorted set remembers which entries are
//! ours, with the score that each got: an entry that somebody else has touched since is theirs, and is never changed
//! again, but for taking it out together with its session.
//!
//! A pass that was broken off is not resumed where it stopped, but begun again: a place in a scan means nothing to a
//! server that was restarted, and a session that is indexed already costs one look.
//!
//! What it refuses: to take for a time what is none in the unit, to keep its keys in another slot than the sessions, and
//! to write on a replica.

#[cfg(feature = "daemon")]
mod daemon;
#[cfg(feature = "daemon")]
mod meters;
mod reap;
mod report;
#[cfg(feature = "daemon")]
mod so_far;
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
pub use reap::{MIN_MAX_AGE, ReapListener, ReapSettings, Reaper};
pub use report::{Comparison, Difference, Doomed, IndexReport, Kind, ReapNotice, ReapReport, Standing, UndoReport};
#[cfg(feature = "daemon")]
pub use so_far::{IndexSoFar, PageInFlight};
pub use template::KeyTemplate;
pub use undo::UndoListener;
pub use walk::{WalkListener, WalkNotice};

use step::Steps;

/// The most keys that one page of a scan looks at.
const SCAN_PAGE: u64 = 500;
/// The fewest, however slow it is to be.
const SMALLEST_PAGE: u64 = 10;
/// How many keys a second are looked at when not said otherwise.
pub const DEFAULT_RATE: u64 = 20_000;

/// In which unit the field and the index tell the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds since 1970, maybe with a fraction.
    #[default]
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
}

impl Unit {
    /// Reads `s` or `ms`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(unit: &str) -> Result<Self> {
        match unit {
            "s" => Ok(Self::Seconds),
            "ms" => Ok(Self::Milliseconds),
            _ => Err(Error::invalid(format!(
                "{unit:?} is not a unit of time; there are s and ms"
            ))),
        }
    }

    /// How long it is, in microseconds.
    pub(super) fn micros(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1_000,
        }
    }

    /// A time in this unit, with its fraction.
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

/// Which sessions, and where their index is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The keys of the sessions.
    pub pattern: KeyPattern,
    /// The field of a session that says since when it is disconnected; missing, empty or `0` while it is active.
    pub field: String,
    /// The index, when it is one that others use as well. Otherwise it is one of our own.
    pub index: Option<String>,
    /// The unit of the field and of the index.
    pub unit: Unit,
    /// How many keys a second are looked at, at most. Lower burdens the store less and takes longer.
    pub rate: u64,
}

impl SessionSettings {
    /// The usual care for a pattern and a field.
    ///
    /// # Errors
    /// `Invalid` for a pattern without one place for the id, or an empty field.
    pub fn new(pattern: &str, field: &str) -> Result<Self> {
        if field.is_empty() {
            let message = "the name of the field is empty; name the one that says since when a session is disconnected";
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

    /// How many keys a page looks at: a tenth of a second's, within bounds.
    fn page(&self) -> u64 {
        (self.rate / 10).clamp(SMALLEST_PAGE, SCAN_PAGE)
    }

    /// How long to rest after so many keys.
    fn rest(&self, keys: u64) -> Duration {
        Duration::from_micros(keys.saturating_mul(1_000_000) / self.rate.max(1))
    }
}

/// The keys that belong to an index.
#[derive(Debug, Clone)]
struct Keys {
    /// The index itself.
    index: Vec<u8>,
    /// What we added to it.
    added: Vec<u8>,
    /// Notes about passes.
    notes: Vec<u8>,
    /// What a reaper would need to find out what became of a page; a name follows.
    marker: String,
}

impl Keys {
    fn of(settings: &SessionSettings) -> Self {
        let pattern = String::from_utf8_lossy(&settings.pattern.key("*")).into_owned();
        // Keys of ours live in the slot of the index, so that one step may touch both.
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

/// The sessions of other programs and their index.
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
    /// Works over this connection. No I/O.
    ///
    /// # Errors
    /// `Invalid` for a rate of zero or an empty name of the index.
    pub fn new(connection: Connection, settings: SessionSettings) -> Result<Self> {
        Ok(Self {
            steps: Steps::new(connection, settings)?,
            stop: Arc::default(),
        })
    }

    /// Ends passes early, also those of a reaper of these sessions: once the flag is set, no further step is begun.
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

/// Refuses keys that a cluster keeps apart: no atomic step could look at them.
///
/// # Errors
/// `Misconfigured`, with the reason.
fn check_slots(keys: &Keys, settings: &SessionSettings, templates: &[&KeyTemplate]) -> Result<()> {
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

/// A store that did not answer for longer did not serve.
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
    fn a_time_has_its_fraction_in_either_unit() {
        assert_eq!(Unit::Seconds.of_micros(1_763_706_000_000_042), "1763706000.000042");
        assert_eq!(Unit::Milliseconds.of_micros(1_763_706_000_000_042), "1763706000000.042");
        assert!(Unit::parse("m").unwrap_err().to_string().contains("s and ms"));
    }

    #[test]
    fn keys_of_ours_are_in_the_slot_of_the_index() {
        for (pattern, index) in [
            ("session:*", None),
            ("{app}:session:*", None),
            ("session:*", Some("disconnected_sessions")),
            ("{app}:session:*", Some("{app}:disconnected")),
        ] {
            let keys = Keys::of(&settings(pattern, index));
            for key in [&keys.added, &keys.notes, &keys.marker.clone().into_bytes()] {
                assert_eq!(slot(key), slot(&keys.index), "{pattern} {index:?}");
            }
        }
        let (one, other) = (settings("session:*", Some("i")), settings("room:*", Some("i")));
        assert_ne!(
            Keys::of(&one).added,
            Keys::of(&other).added,
            "what is added is known by pattern"
        );
    }

    #[test]
    fn a_cluster_is_fine_only_where_all_keys_share_a_slot() {
        let checked = |pattern: &str, index: Option<&str>, template: &str| {
            let settings = settings(pattern, index);
            let template = KeyTemplate::parse(template).unwrap();
            check_slots(&Keys::of(&settings), &settings, &[&template])
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
    fn a_rate_bounds_the_pages_and_the_rests_between_them() {
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
