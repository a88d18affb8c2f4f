//! Adoptions: looking after what programs in other languages keep in Valkey or Redis by hand, without a change in them.
//!
//! - **A registry**, a hash of key → owner's id and heartbeat keys with a ttl: a [`Janitor`] removes the entries of dead
//!   owners.
//! - **Leases**, plain keys `poll:lease:<target>` = instance id: [`OldLeases`] keeps the nodes of a fleet that is moving to
//!   Tenure apart from its old instances, and [`KeyTargets`] reads its targets from another program's keys.
//! - **Sessions**, hashes with a field that holds the time since which no client is connected: an index of the disconnected
//!   ([`Sessions`]) and a [`Reaper`].
//!
//! Each decides in the one atomic step that changes something. What an earlier look said, or an index, only says where to
//! look.
//!
//! What it refuses: to depend on keyspace notifications or on `CONFIG` and `KEYS`, and to decide on a replica. It works on
//! one server at a time.

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

use std::time::Duration;

#[cfg(feature = "daemon")]
pub use daemon::{Early, Ended};
pub use health::Break;
pub use leases::{
    Beside, Counts, HeldBy, MAX_OLD_TTL, MIN_OLD_TTL, MovingKeys, OldKeys, OldLease, OldLeaseSettings, OldLeaseStatus,
    OldLeases, Row, StoredKeys, Taken,
};
pub use pattern::KeyPattern;
pub use registry::{
    AdoptSettings, Candidate, DEFAULT_SETTLE, Heartbeat, Janitor, Listener, MAX_OWNER, MAX_OWNERS, MAX_SETTLE, Notice,
    OwnerAt, PassReport, Preview,
};
#[cfg(feature = "daemon")]
pub use registry::{LAST_PAGE as LAST_REGISTRY_PAGE, PassEnd, PassListener, RegistryDaemon, Removed, Tally};
pub use sessions::{
    Comparison, DEFAULT_RATE, Difference, Doomed, IndexReport, KeyTemplate, Kind, MIN_MAX_AGE, ReapListener,
    ReapNotice, ReapReport, ReapSettings, Reaper, SessionSettings, Sessions, Standing, UndoListener, UndoReport, Unit,
    WalkListener, WalkNotice,
};
#[cfg(feature = "daemon")]
pub use sessions::{IndexSoFar, LAST_PAGE as LAST_SESSIONS_PAGE, PageInFlight, ReapedListener, SessionsDaemon};
pub use targets::{ForeignReader, ForeignTargets, KeyTargets, MAX_FOREIGN};

pub use tenure_valkey::connection::{Connection, ConnectionOptions};

/// The most entries, keys or sessions that one step touches.
pub const PAGE: usize = 200;
/// How long the marker of a janitor outlives its last step, so that what it tells can still be read back.
const MARKER_KEPT: Duration = Duration::from_secs(2 * 3600);

/// Bytes of others for people to read: at most 200 characters, what is no text replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(800)])
        .chars()
        .take(200)
        .collect()
}
