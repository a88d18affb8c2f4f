//! Leases as a member sees them: exclusive work, each grant with a fencing token.
//!
//! [`Leases::acquire`] asks once and says what came of it; who wants to wait asks again. What is granted is a
//! [`LeaseGuard`]: it knows without I/O whether it still counts, and turns `Lost` before anybody else can have the lease.
//! The beats of the membership keep all leases alive together, however many there are.

mod acquire;
mod book;
mod give_up;
mod guard;
mod journal;
mod keeper;
mod revision;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Lease, ReleaseOutcome};
use tenure_core::settling::GapCause;
use tenure_core::store::{Page, PageRequest};

use crate::membership::Shared;

pub(crate) use book::Book;
pub use guard::LeaseGuard;
pub(crate) use keeper::keep_leases;
pub(crate) use revision::{Act, Answered, Compared, Sent};

/// How many leases go into one call: enough to be quick, few enough for one request timeout.
const PART: usize = 1_000;

/// What asking for a lease came to.
#[derive(Debug)]
pub enum Acquire {
    /// It is ours.
    Granted(LeaseGuard),
    /// Somebody holds it: another tenure, or a guard of this very membership (also one that is being given up).
    Held {
        /// The holder.
        by: TenureId,
        /// When it can be had at the earliest, if the holder is not heard of again.
        free_in: Duration,
    },
    /// It was handed off to this member, who has not come for it yet.
    Reserved {
        /// The successor.
        to: MemberId,
        /// When anybody may have it.
        free_in: Duration,
    },
    /// It is free, but the group is inside a grace period and may have forgotten a holder.
    Unsettled {
        /// When to ask again.
        retry_in: Duration,
        /// Why the grace began.
        cause: GapCause,
    },
}

impl Acquire {
    /// The guard, when it was granted.
    #[must_use]
    pub fn granted(self) -> Option<LeaseGuard> {
        match self {
            Self::Granted(guard) => Some(guard),
            _ => None,
        }
    }
}

/// The leases of one membership. Cheap to clone; all clones are one.
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

    /// Asks for a lease, once.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be joining again), `Invalid`, `TooLate`, `Unavailable`. A call
    /// whose reply was lost is asked again for about two seconds first; after an error with an unknown outcome, what was
    /// granted all the same is given back in the background.
    pub async fn acquire(&self, lease: &str) -> Result<Acquire> {
        let mut outcomes = self.acquire_many(&[LeaseName::new(lease)?]).await?;
        outcomes.pop().ok_or_else(short_answer)
    }

    /// Asks for many leases, each answered by itself, in the order given. One call of the store per 1,000.
    ///
    /// # Errors
    /// As [`Leases::acquire`]. Leases of earlier calls that were granted before an error are given back.
    pub async fn acquire_many(&self, leases: &[LeaseName]) -> Result<Vec<Acquire>> {
        acquire::acquire(&self.shared, leases).await
    }

    /// Gives many leases up at once, in the order given, and keeps them for `to` when that is another living member. As
    /// [`LeaseGuard::release`] and [`LeaseGuard::hand_off`] do.
    ///
    /// # Errors
    /// As [`LeaseGuard::release`].
    pub async fn release_many(&self, guards: Vec<LeaseGuard>, to: Option<&MemberId>) -> Result<Vec<ReleaseOutcome>> {
        give_up::give_up(&self.shared, guards, to).await
    }

    /// Whose a lease is, and whether that holder is alive now. `None` when it is free.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn look_up(&self, lease: &str) -> Result<Option<Lease>> {
        let (shared, lease) = (&self.shared, LeaseName::new(lease)?);
        let call = shared.context.store.lease_of(&shared.group, &lease);
        shared.context.read(call).await
    }

    /// Lists the leases of a member, or all, page by page.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    pub async fn list(&self, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let shared = &self.shared;
        let call = shared.context.store.leases(&shared.group, holder, page);
        shared.context.read(call).await
    }

    /// How many leases this membership holds, as far as it knows. No I/O.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.leases.held()
    }
}

fn short_answer() -> Error {
    Error::new(
        tenure_core::error::ErrorKind::Internal,
        "the store answered fewer leases than it was asked",
    )
}

#[cfg(test)]
mod tests;
