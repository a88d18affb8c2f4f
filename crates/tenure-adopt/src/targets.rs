//! Targets of a fleet that another program defines by its own keys.

mod fields;
mod reader;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure::fleet::TargetSource;
use tenure::heartbeat::HeartbeatRuntime;
use tenure::membership::Membership;
use tenure_core::error::Result;
use tenure_core::id::LeaseName;
use tenure_core::target::TargetSpec;
use tenure_valkey::connection::{Connection, ConnectionOptions};

use crate::leases::connected;
use crate::pattern::KeyPattern;
use crate::text;

pub use reader::{ForeignReader, ForeignTargets, MAX_FOREIGN};

/// The targets of a fleet, one key of another program in Valkey or Redis each: `endpoint:*` maps `endpoint:a` to `a`.
/// The keys are only read, in pages with pauses between them.
///
/// The fleet reads them at every discovery ([`FleetSettings::discovery`](tenure::FleetSettings::discovery)) and then
/// notices added, removed and paused targets. An incomplete read is an error, and the fleet continues with the targets
/// it knows.
pub struct KeyTargets {
    connection: Connection,
    reader: ForeignReader,
    skipped: AtomicUsize,
    unclear: AtomicUsize,
    asks_for_field: bool,
    /// Whether it was logged that no key has the field that pauses.
    told_of_field: AtomicBool,
    /// Keeps the connection's thread alive.
    _runtime: HeartbeatRuntime,
}

impl fmt::Debug for KeyTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyTargets({})", self.connection.place())
    }
}

impl KeyTargets {
    /// Connects to the store of the keys. `pattern` contains one `*` in place of the target's name. With
    /// `paused_field`, the keys are hashes, or strings with a JSON object. A target is paused if that field exists and
    /// is not one of `0`, `false`, `no`, `off` and empty. A string that is not a JSON object and a key of another type pause
    /// their target. An unreachable store is not an error: the fleet retries.
    ///
    /// # Errors
    /// `Invalid` for the pattern, `Misconfigured` or `Unsupported` for the URL.
    pub async fn connect(
        membership: &Membership,
        url: &str,
        pattern: &str,
        paused_field: Option<&str>,
    ) -> Result<Self> {
        let pattern = KeyPattern::parse(pattern)?;
        let runtime = membership.heartbeat_runtime();
        let connection = connected(&runtime, url, ConnectionOptions::default()).await?;
        Ok(Self {
            reader: ForeignReader::new(connection.clone(), pattern, paused_field.map(str::to_owned)),
            connection,
            skipped: AtomicUsize::new(0),
            unclear: AtomicUsize::new(0),
            asks_for_field: paused_field.is_some(),
            told_of_field: AtomicBool::new(false),
            _runtime: runtime,
        })
    }

    /// Treats the keys as sessions of another program; only connected sessions are targets. The field, of a hash or of
    /// a JSON object, has the disconnect time (`last_disconnect`): empty or `0` means connected, and any other number or
    /// time in ISO 8601 means that the session is not a target. Any other value pauses the target, and so does a string
    /// that is not a JSON object.
    #[must_use]
    pub fn disconnected_field(self, field: &str) -> Self {
        Self {
            reader: self.reader.disconnected_field(field.to_owned()),
            ..self
        }
    }

    /// How many matching keys have a name that is not a valid lease name, in the last read. They are left out.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped.load(Ordering::Relaxed)
    }

    /// How many targets are paused because their key is unreadable, in the last read.
    #[must_use]
    pub fn unclear(&self) -> usize {
        self.unclear.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl TargetSource for KeyTargets {
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>> {
        let found = self.reader.read().await?;
        if self.skipped.swap(found.nameless, Ordering::Relaxed) < found.nameless {
            let (keys, place) = (found.nameless, self.connection.place());
            let first = found.nameless_first.first().map(|name| text(name));
            tracing::warn!(keys, first, place, "keys with invalid target names are left out");
        }
        let is_mistyped = self.asks_for_field && found.with_field == 0 && !found.targets.is_empty();
        if is_mistyped && !self.told_of_field.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                place = self.connection.place(),
                "no key has the field that pauses; is its name right?"
            );
        }
        if self.unclear.swap(found.unclear, Ordering::Relaxed) < found.unclear {
            let (keys, place) = (found.unclear, self.connection.place());
            tracing::warn!(keys, place, "unreadable keys: their targets count as paused");
        }
        Ok(found.targets)
    }
}
