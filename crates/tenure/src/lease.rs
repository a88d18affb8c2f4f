//! Leases of a member: exclusive work (distributed locks) or a limited number of holders (semaphores), each grant with a
//! fencing token.
//!
//! [`Leases::acquire`] tries once and returns the outcome; [`Leases::acquire_within`] waits for its turn. A granted
//! lease is a [`LeaseGuard`]. It knows its verdict without I/O and turns `Lost` before another member can acquire the lease. The
//! beats of the membership renew all its leases together, at constant cost.

mod acquire;
mod give_up;
mod guard;
mod journal;
mod reconciler;
mod revision;
mod table;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Holders, Lease, MAX_WAIT, ReleaseOutcome};
use tenure_core::settling::GapCause;
use tenure_core::store::{Page, PageRequest};

use crate::membership::Shared;

pub use guard::LeaseGuard;
pub(crate) use reconciler::reconcile_leases;
pub(crate) use revision::{Act, ActResult, BeatSnapshot, RevisionCheck};
pub(crate) use table::LeaseTable;
pub(crate) use waits::WaitingGroups;
pub use waits::{LeaseWaits, Waited};

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
    /// Held or waited for with another number of holders.
    HoldersDiffer {
        /// The number of holders it has now.
        holders: Holders,
    },
    /// Too many requests wait already. Only with a wait.
    QueueFull {
        /// How many.
        waiting: u32,
    },
}

/// How to acquire a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AcquireOptions {
    /// The number of holders: 1 for an exclusive lease, up to 1,000 for a semaphore. It is fixed while a place of the lease
    /// is taken or waited for.
    pub holders: Holders,
    /// How long to wait if the lease is not free, first come, first served. A wait of more than a minute
    /// ([`MAX_WAIT`]) joins the queue again after each minute. Zero tries once.
    pub wait: Duration,
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
        acquire::acquire(&self.shared, leases, Holders::ONE).await
    }

    /// Acquires a lease, and waits up to `wait` for it, first come, first served. Dropping the future gives up the place in
    /// the queue, and the lease if it was granted at the same moment. When the wait is over, the answer is `Held` (or
    /// `Unsettled`).
    ///
    /// # Errors
    /// As [`Leases::acquire_with`].
    pub async fn acquire_within(&self, lease: &str, wait: Duration) -> Result<Acquire> {
        let options = AcquireOptions {
            wait,
            ..AcquireOptions::default()
        };
        self.acquire_with(lease, options).await
    }

    /// Acquires a lease with a number of holders, or with a wait. While the store cannot be reached, a wait goes on, and
    /// asks again. A lease that another guard of this membership has is `Held` without a wait.
    ///
    /// # Errors
    /// As [`Leases::acquire`]. `Held` when a later request of this tenure has taken over the place (another process that
    /// acts under it), or when the wait is over although nothing holds the lease. `Invalid` for a target of a
    /// fleet.
    pub async fn acquire_with(&self, lease: &str, options: AcquireOptions) -> Result<Acquire> {
        let lease = LeaseName::new(lease)?;
        if options.wait.is_zero() {
            let mut outcomes = acquire::acquire(&self.shared, &[lease], options.holders).await?;
            return outcomes.pop().ok_or_else(short_answer);
        }
        let clock = &*self.shared.context.clock;
        let until = clock.mono() + options.wait;
        loop {
            let (began, left) = (clock.mono(), until.since(clock.mono()));
            let part = AcquireOptions {
                wait: left.min(MAX_WAIT),
                ..options
            };
            let answer = acquire::acquire_waiting(&self.shared, &lease, part).await?;
            // An earlier answer is not the end of a part of the wait.
            let is_over = left <= MAX_WAIT || clock.mono().since(began) < MAX_WAIT;
            if is_over || matches!(answer, Acquire::Granted(_)) {
                return Ok(answer);
            }
        }
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
