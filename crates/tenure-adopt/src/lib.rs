//! Adoptions: support for hand-written Valkey or Redis data of programs in other languages, without changes to these
//! programs.
//!
//! - **A registry**, a hash of key → owner's id with heartbeat keys that have a ttl: a [`Janitor`] removes the entries
//!   of dead owners.
//! - **Leases**, plain keys `poll:lease:<target>` = instance id: [`OldLeases`] excludes the nodes of a migrating fleet
//!   from its old instances, and [`KeyTargets`] reads the fleet's targets from another program's keys.
//! - **Sessions**, hashes with a field for the time of the disconnect: an index of the disconnected sessions
//!   ([`Sessions`]) and a [`Reaper`].
//!
//! Each adoption decides in the same atomic step that makes the change. Earlier reads and the index only select what to
//! check.
//!
//! The adoptions never use keyspace notifications, `CONFIG` or `KEYS`, never decide on a replica, and work on one
//! server at a time.

#[cfg(feature = "daemon")]
mod daemon;
mod health;
pub mod leases;
mod pattern;
pub mod registry;
mod scan;
#[cfg(feature = "daemon")]
mod scrape;
pub mod sessions;
mod slot;
pub mod targets;
mod weight;

use std::time::Duration;

#[cfg(feature = "daemon")]
pub use daemon::{DaemonEnd, EarlyEnd};
pub use health::Break;
pub use leases::{
    HeldBy, HolderCounts, LeaseComparison, MAX_OLD_TTL, MIN_OLD_TTL, MovingKeys, NamesWithoutUse, OldKeys, OldLease,
    OldLeaseSettings, OldLeaseStatus, OldLeases, StoredKeys, TakeOutcome, TargetRow, Until,
};
pub use pattern::KeyPattern;
pub use registry::{
    AdoptSettings, Candidate, DEFAULT_SETTLE, Heartbeat, Janitor, Listener, MAX_OWNER, MAX_OWNERS, MAX_SETTLE, Notice,
    OwnerAt, PassReport, Preview,
};
#[cfg(feature = "daemon")]
pub use registry::{LAST_PAGE as LAST_REGISTRY_PAGE, PassEnd, PassListener, RegistryDaemon, Removed, Tally};
pub use sessions::{
    Comparison, DEFAULT_RATE, Difference, DifferenceKind, Doomed, IndexReport, KeyTemplate, MIN_MAX_AGE, ReapListener,
    ReapNotice, ReapReport, ReapSettings, Reaper, SessionCounts, SessionSettings, Sessions, UndoListener, UndoReport,
    Unit, WalkListener, WalkNotice,
};
#[cfg(feature = "daemon")]
pub use sessions::{IndexProgress, LAST_PAGE as LAST_SESSIONS_PAGE, PageInFlight, ReapedListener, SessionsDaemon};
pub use targets::{ForeignReader, ForeignTargets, KeyTargets, MAX_FOREIGN};

pub use tenure_valkey::connection::{Connection, ConnectionOptions};

/// The most entries, keys or sessions that one step touches. Large ones are fewer.
pub const PAGE: usize = 200;
/// How long a janitor's marker outlives its last step, so that the result can be read back.
const MARKER_KEPT: Duration = Duration::from_secs(2 * 3600);

/// Foreign bytes as text for people: at most 200 characters, invalid UTF-8 replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(800)])
        .chars()
        .take(200)
        .collect()
}
