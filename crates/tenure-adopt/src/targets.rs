//! Targets that another program tells of by keys of its own, as a source for a fleet.

mod fields;
mod reader;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure::fleet::TargetSource;
use tenure::heart::HeartbeatRuntime;
use tenure::membership::Membership;
use tenure_core::error::Result;
use tenure_core::id::LeaseName;
use tenure_core::target::TargetSpec;
use tenure_valkey::connection::{Connection, ConnectionOptions};

use crate::leases::connected;
use crate::pattern::KeyPattern;

pub use reader::{ForeignReader, ForeignTargets, MAX_FOREIGN};

/// The targets of a fleet, each named by a key of another program in Valkey or Redis: `endpoint:*` makes `a` of
/// `endpoint:a`. The keys are only read, in pages with pauses between them.
///
/// The fleet reads them at every discovery ([`FleetSettings::discovery`](tenure::FleetSettings::discovery)): what was added,
/// removed or paused is noticed then. A reading that did not reach its end is an error, and the fleet goes on with what
/// it knows.
pub struct KeyTargets {
    connection: Connection,
    reader: ForeignReader,
    skipped: AtomicUsize,
    unclear: AtomicUsize,
    /// Holds the thread that the connection lives on.
    _runtime: HeartbeatRuntime,
}

impl fmt::Debug for KeyTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyTargets({})", self.connection.place())
    }
}

impl KeyTargets {
    /// Connects to where the keys are. `pattern` has one `*`, where the target's name stands. With `paused_field` the keys
    /// are hashes or strings with a JSON object, and a target is paused while that field is there and says anything but `0`,
    /// `false`, `no`, `off` or nothing. A key that begins like JSON and is none, or is neither a hash nor a string,
    /// pauses its target. A store that is away is no error: the fleet asks again.
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
            _runtime: runtime,
        })
    }

    /// The keys are sessions of another program, and only those with a connection are targets. The field, of a hash or of a
    /// JSON object, says since when a session has none (`last_disconnect`): nothing or `0` means that it has one, any other
    /// number that it is no target for as long. What is neither pauses its target, as does a string that is no JSON object.
    #[must_use]
    pub fn disconnected_field(self, field: &str) -> Self {
        Self {
            reader: self.reader.disconnected_field(field.to_owned()),
            ..self
        }
    }

    /// How many keys match whose target's name cannot be that of a lease, as of the last reading. They are left out.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped.load(Ordering::Relaxed)
    }

    /// How many targets are paused because their key cannot be understood, as of the last reading.
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
            tracing::warn!(keys, place, "keys whose names are none of targets are left out");
        }
        if self.unclear.swap(found.unclear, Ordering::Relaxed) < found.unclear {
            let (keys, place) = (found.unclear, self.connection.place());
            tracing::warn!(
                keys,
                place,
                "keys that cannot be understood do not say whether their targets are to be worked on: these count as paused"
            );
        }
        Ok(found.targets)
    }
}
