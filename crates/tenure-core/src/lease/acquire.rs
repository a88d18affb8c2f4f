//! Acquiring leases.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Holders, Place, Queue, Token, check_leases};
use crate::call::Limits;
use crate::error::{Error, Result};
use crate::id::{LeaseName, MemberId, TenureId};
use crate::membership::Revision;
use crate::settling::GapCause;
use crate::time::StoreTime;

/// The result of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The caller holds the lease from now on.
    Granted {
        /// Higher than every earlier token.
        token: Token,
        /// The place of the grant.
        place: Place,
        /// The generation of the lease; see [`LeaseHolder::generation`](super::LeaseHolder::generation).
        generation: Token,
        /// The ended tenure that held it until this call, if the janitor had not released it.
        from: Option<TenureId>,
    },
    /// The caller already held the lease, with this token.
    Kept {
        /// The token of the grant.
        token: Token,
        /// The place of the grant.
        place: Place,
        /// The generation of the lease.
        generation: Token,
    },
    /// Another tenure holds it. This includes a superseded or expelled tenure until its last deadline, because its
    /// process may still run.
    Held {
        /// The holder.
        by: TenureId,
        /// The earliest time it can become free, if the holder sends no further beat.
        free_in: Duration,
    },
    /// It is reserved for this member, which has not acquired it yet.
    Reserved {
        /// The successor.
        to: MemberId,
        /// The remaining time of the reservation.
        free_in: Duration,
    },
    /// It is free, but the group is within a grace period and may have forgotten a holder.
    Unsettled {
        /// When to retry.
        retry_in: Duration,
        /// The cause of the grace period.
        cause: GapCause,
    },
    /// The request waits in the queue of the lease. Only for an acquire with a [`Queue`].
    Waiting {
        /// The number of waiters before it.
        ahead: u32,
        /// The end of the wait.
        until: StoreTime,
    },
    /// The lease is held or waited for with another number of holders. Nothing changed.
    HoldersDiffer {
        /// The number of holders it has now.
        holders: Holders,
    },
    /// The queue of the lease or of the group is full. Nothing changed.
    QueueFull {
        /// The number of waiters.
        waiting: u32,
    },
}

impl AcquireOutcome {
    /// The token, if the caller holds the lease.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. } | Self::Kept { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The generation, if the caller holds the lease.
    #[must_use]
    pub fn generation(&self) -> Option<Token> {
        match self {
            Self::Granted { generation, .. } | Self::Kept { generation, .. } => Some(*generation),
            _ => None,
        }
    }

    /// The place, if the caller holds the lease.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Granted { place, .. } | Self::Kept { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// The reply to an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// One outcome per lease, in request order.
    pub outcomes: Vec<AcquireOutcome>,
    /// The time until the caller's tenure lapses without another beat.
    pub expires_in: Duration,
    /// The ttl of the caller's tenure, for the log line. `None` from a daemon, whose clients know their own.
    pub ttl: Option<Duration>,
    /// The revision of the tenure's holdings.
    pub revision: Revision,
    /// The revision before this call. If it is lower than the one the client received last, the store lost its tail.
    pub before: Revision,
    /// The store time of the reply.
    pub as_of: StoreTime,
}

/// [`LeaseStore::acquire`](super::LeaseStore::acquire) as a value; also the body of `POST …/leases-acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acquire {
    /// The acquiring tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000. An empty list only checks the tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub leases: Vec<LeaseName>,
    /// The number of holders of each lease. It is fixed while a place is taken or waited for.
    #[serde(default, skip_serializing_if = "Holders::is_one")]
    #[cfg_attr(feature = "openapi", schema(value_type = u16, minimum = 1, maximum = 1000, default = 1))]
    pub holders: Holders,
    /// The highest revision of any answer under this tenure, as in a beat. Without it, a store that lost its tail may grant
    /// again what it forgot.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
    /// Waits in the queue if the lease is not free; only for a single lease. Not part of the JSON.
    #[serde(skip)]
    pub queue: Option<Queue>,
}

impl Acquire {
    /// Acquires exclusive leases without waiting.
    #[must_use]
    pub fn new(tenure: TenureId, leases: Vec<LeaseName>) -> Self {
        Self {
            tenure,
            leases,
            holders: Holders::ONE,
            seen: Revision::NONE,
            queue: None,
        }
    }
}

impl Limits for Acquire {
    fn check(&self, _: Duration) -> Result<()> {
        if let Some(queue) = &self.queue {
            queue.check()?;
            if self.leases.len() != 1 {
                return Err(Error::invalid(format!(
                    "a wait for {} leases in one call; wait for one lease at a time",
                    self.leases.len()
                )));
            }
        }
        check_leases(self.leases.len())
    }
    fn items(&self) -> usize {
        self.leases.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let leases = self.leases.split_off(at);
        Some(Self { leases, ..self.clone() })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        Acquired {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }
    }
}
