//! Heartbeats by name.

use super::reading::MirrorStatus;
use crate::id::ProviderId;
use crate::time::StoreTime;

/// A sign of life of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The provider.
    pub provider: ProviderId,
    /// When the presented token was issued, on the ledger's clock; `None` without a token.
    pub issued_at: Option<StoreTime>,
}

impl Heartbeat {
    /// A heartbeat without a token.
    #[must_use]
    pub fn of(provider: ProviderId) -> Self {
        Self {
            provider,
            issued_at: None,
        }
    }
}

/// The reply to a heartbeat: the first that applies, in the order `Absent`, `Deactivated`, `Revoked`, `Offline`,
/// `Unknown`, `Recorded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeartbeatReply {
    /// The tenure is extended.
    Recorded,
    /// The provider is offline: its row names no tenure, or an ended one.
    Offline,
    /// An operator has deactivated it.
    Deactivated,
    /// The provider was deactivated after the token was issued, and activated again.
    Revoked,
    /// The row names a tenure that the store does not know; see [`Standing::Unknown`](super::Standing::Unknown).
    Unknown,
    /// There is no row; the ledger may have one.
    Absent,
}

/// The replies to a batch of heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeats {
    /// One reply per heartbeat, in request order.
    pub replies: Vec<HeartbeatReply>,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}
