//! Waiting for a lease.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Token;
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName, NodeId, TenureId, Term};

/// The longest wait for a lease.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// The maximum number of waiters of one lease.
pub const MAX_WAITING_PER_LEASE: usize = 10_000;
/// The maximum number of waiters of one group.
pub const MAX_WAITING_PER_GROUP: usize = 20_000;
/// How long a shared store reserves a lease for a waiter, until the waiter's node takes it.
pub const GRANT_RESERVATION: Duration = Duration::from_secs(1);
/// A shared store passes over the waiters of a node that has not ticked for this long.
pub const NODE_SILENCE: Duration = Duration::from_secs(2);

/// The number of one waiting request. The process that holds the request's connection draws it at random. Below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct RequestId(u64);

impl RequestId {
    /// Checks and takes a number.
    ///
    /// # Errors
    /// `Invalid` when it is above 2^53 − 1.
    pub fn new(request: u64) -> Result<Self> {
        if request > Term::MAX {
            return Err(Error::invalid(format!("the request number {request} is above 2^53-1")));
        }
        Ok(Self(request))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for RequestId {
    type Error = Error;
    fn try_from(request: u64) -> Result<Self> {
        Self::new(request)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The wish to wait for a lease that is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The longest wait, counted from when the request joins; at most [`MAX_WAIT`].
    pub within: Duration,
    /// The number of the request.
    pub request: RequestId,
    /// The process that holds the request's connection.
    pub node: NodeId,
}

impl Queue {
    /// Rejects a wait that is too long.
    ///
    /// # Errors
    /// `Invalid`, with the value and the limit.
    pub fn check(&self) -> Result<()> {
        if self.within > MAX_WAIT {
            return Err(Error::invalid(format!(
                "a wait of {} ms for a lease; at most {} ms",
                self.within.as_millis(),
                MAX_WAIT.as_millis()
            )));
        }
        Ok(())
    }
}

/// [`LeaseStore::withdraw`](super::LeaseStore::withdraw) as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdraw {
    /// The waiting tenure.
    pub tenure: TenureId,
    /// The lease.
    pub lease: LeaseName,
    /// The number of the request. Another number changes nothing.
    pub request: RequestId,
}

/// The result of a withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// The tenure has no place and no grant of this request. Nothing changed.
    Nothing,
    /// The place in the queue was removed.
    Removed,
    /// The request had been granted; the grant was released.
    GivenBack {
        /// The token of the grant.
        token: Token,
    },
}

/// [`LeaseStore::wait_for_grants`](super::LeaseStore::wait_for_grants) as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitForGrants {
    /// Only requests of this process.
    pub node: NodeId,
    /// The maximum wait.
    pub patience: Duration,
}

/// News for a waiting request. Its turn has come: it was granted, or the lease is reserved for it. Send its [`Acquire`]
/// again, with the same number, for the result. Or it was replaced, and is over.
///
/// [`Acquire`]: super::Acquire
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTurn {
    /// The group.
    pub group: Group,
    /// The lease.
    pub lease: LeaseName,
    /// The waiting tenure.
    pub tenure: TenureId,
    /// The number of its request.
    pub request: RequestId,
    /// Whether a later request of the tenure has its place, or the lease.
    pub replaced: bool,
}
