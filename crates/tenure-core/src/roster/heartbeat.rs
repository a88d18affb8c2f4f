//! Heartbeats by name.

use super::reading::Stamp;
use crate::id::ProviderId;
use crate::time::StoreTime;

/// A provider was heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub provider: ProviderId,
    /// When what it showed to be let in was issued, on the ledger's clock; `None` when it showed nothing.
    pub issued_at: Option<StoreTime>,
}

impl Heartbeat {
    /// One of which nothing else is known.
    #[must_use]
    pub fn of(provider: ProviderId) -> Self {
        Self {
            provider,
            issued_at: None,
        }
    }
}

/// What a heartbeat came to. The first that holds, in this order: `Absent`, `Deactivated`, `Revoked`, `Offline`,
/// `Unknown`, `Recorded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeartbeatReply {
    /// Its tenure goes on.
    Recorded,
    /// It is not online: its row names no tenure, or one that has ended.
    Offline,
    /// An operator has deactivated it.
    Deactivated,
    /// It was deactivated after what it showed was issued (and activated again).
    Revoked,
    /// Its row names a tenure that the store knows nothing of; see [`Standing::Unknown`](super::Standing::Unknown).
    Unknown,
    /// There is no row. The ledger may know one.
    Absent,
}

/// The answers to a batch of heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeats {
    /// One each, in the order asked.
    pub replies: Vec<HeartbeatReply>,
    /// About the mirror.
    pub stamp: Stamp,
}
