//! Leases of a member: exclusive work (distributed locks), each grant with a fencing token.
//!
//! [`Leases::acquire`] tries once and returns the outcome; a caller that wants to wait retries. A granted lease is a
//! [`LeaseGuard`]. It knows its verdict without I/O and turns `Lost` before another member can acquire the lease. The
//! beats of the membership renew all its leases together, at constant cost.

mod acquire;
mod give_up;
mod guard;
mod journal;
mod reconciler;
mod revision;
mod table;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Lease, ReleaseOutcome};
use tenure_core::settling::GapCause;
use tenure_core::store::{Page, PageRequest};

use crate::membership::Shared;

pub use guard::LeaseGuard;
pub(crate) use reconciler::reconcile_leases;
pub(crate) use revision::{Act, ActResult, BeatSnapshot, RevisionCheck};
pub(crate) use table::LeaseTable;

/// Leases per call: large enough for throughput, small enough for one request time-out.
const PART: usize = 1_000;

/// The result of an acquire.
#[derive(Debug)]
pub enum Acquire {
    /// Granted to this membership.
    Granted(LeaseGuard),
    /// Held by another tenure, or by another guard of this membership (possibly one being released).
    Held {
        /// The holder.
        by: TenureId,
        /// Earliest time until it is free, if the holder sends no further beat.
        free_in: Duration,
    },
    /// Handed off to another member, which has not acquired it yet.
    Reserved {
        /// The successor.
        to: MemberId,
        /// When the reservation ends.
        free_in: Duration,
    },
    /// Free, but the group is in a grace period and may have lost a grant.
    Unsettled {
        /// When to retry.
        retry_in: Duration,
        /// The cause of the grace period.
        cause: GapCause,
    },
}

impl Acquire {
    /// The guard, if granted.
    #[must_use]
    pub fn granted(self) -> Option<LeaseGuard> {
        match self {
            Self::Granted(guard) => Some(guard),
            _ => None,
        }
    }
}

/// The leases of one membership. Clones share state.
#[derive(Clone)]
pub struct Leases {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leases({})", self.shared.group)
    }
}

impl Leases {
    pub(crate) fn open(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    /// Tries to acquire a lease once.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be rejoining), `Invalid`, `TooLate`, `Unavailable`. A call
    /// whose reply was lost is first retried for about two seconds. After an error with an unknown outcome, a lease
    /// that was granted nevertheless is released in the background.
    pub async fn acquire(&self, lease: &str) -> Result<Acquire> {
        let mut outcomes = self.acquire_many(&[LeaseName::new(lease)?]).await?;
        outcomes.pop().ok_or_else(short_answer)
    }

    /// Tries to acquire many leases, each independently. Results are in the order given. One store call per 1,000
    /// leases.
    ///
    /// # Errors
    /// As [`Leases::acquire`]. Leases granted before the error are released.
    pub async fn acquire_many(&self, leases: &[LeaseName]) -> Result<Vec<Acquire>> {
        acquire::acquire(&self.shared, leases).await
    }

    /// Releases many leases together, or hands them off to `to` if that is another living member. Results are in the
    /// order given. See [`LeaseGuard::release`] and [`LeaseGuard::hand_off`].
    ///
    /// # Errors
    /// As [`LeaseGuard::release`].
    pub async fn release_many(&self, guards: Vec<LeaseGuard>, to: Option<&MemberId>) -> Result<Vec<ReleaseOutcome>> {
        give_up::give_up(&self.shared, guards, to).await
    }

    /// Looks up the holder of a lease and whether it is alive. `None` if the lease is free.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn look_up(&self, lease: &str) -> Result<Option<Lease>> {
        let (shared, lease) = (&self.shared, LeaseName::new(lease)?);
        let call = shared.context.store.lease_of(&shared.group, &lease);
        shared.context.read(call).await
    }

    /// Lists the leases of a member, or all leases, page by page.
    ///
    /// # Errors
    /// `Invalid` for a cursor of another listing, `Unavailable`.
    pub async fn list(&self, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let shared = &self.shared;
        let call = shared.context.store.leases(&shared.group, holder, page);
        shared.context.read(call).await
    }

    /// Number of leases this membership holds, as far as it knows. No I/O.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.leases.held()
    }
}

fn short_answer() -> Error {
    Error::new(
        tenure_core::error::ErrorKind::Internal,
        "the store returned fewer results than leases in the request",
    )
}

#[cfg(test)]
mod tests;
