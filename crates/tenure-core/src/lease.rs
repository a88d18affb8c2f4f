//! Leases: the holders of each target, one or up to a fixed number, and their fencing tokens.
//!
//! A lease is a holding: it lives as long as its holder's tenure, and one beat renews all leases of the holder. Unlike
//! other holdings, it must never have more holders than
//! places. So the store grants a lease only when no other process can still
//! work under it (see [`AcquireOutcome`]), every grant has a token above all earlier ones, and a group that may have
//! forgotten a grant issues none until its grace is over.

mod acquire;
mod place;
mod queue;
mod release;
mod revoke;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::acquire::{Acquire, AcquireOutcome, Acquired};
pub use self::place::{Holders, MAX_HOLDERS, Place};
pub use self::queue::{
    GRANT_RESERVATION, MAX_WAIT, MAX_WAITING_PER_GROUP, MAX_WAITING_PER_LEASE, NODE_SILENCE, Queue, RequestId,
    WaitForGrants, WaitingTurn, Withdraw, Withdrawn,
};
pub use self::release::{ReleaseLeases, ReleaseOutcome, ReleasedLeases};
pub use self::revoke::{FreeWhen, RevokeLease, RevokeOf, Revoked};
use crate::call::send;
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName, MemberId, NodeId, TenureId, Term};
use crate::membership::Revision;
use crate::store::{Backend, Call, Page, PageRequest};

/// The maximum number of leases in one call.
pub const MAX_LEASES: usize = 10_000;
/// How long a handed-off lease is reserved for its successor.
pub const RESERVATION: Duration = Duration::from_secs(5);

/// A fencing token: a strictly rising integer per group, below 2^53. A sink that remembers the highest token it has
/// seen can reject a former holder that does not know it lost the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Token(u64);

impl Token {
    /// Checks and takes a token.
    ///
    /// # Errors
    /// `Invalid` when it is 0 or above 2^53 − 1.
    pub fn new(token: u64) -> Result<Self> {
        if token == 0 || token > Term::MAX {
            return Err(Error::invalid(format!("the token {token} is outside 1..=2^53-1")));
        }
        Ok(Self(token))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Token {
    type Error = Error;
    fn try_from(token: u64) -> Result<Self> {
        Self::new(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseHolder {
    /// The member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token of the grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// Its place, from 0.
    #[cfg_attr(feature = "openapi", schema(value_type = u16))]
    pub place: Place,
    /// The generation of the lease. It begins when the lease is granted while no place is taken, and all grants of it have it
    /// in common; it rises with each generation. That of an exclusive grant is its token.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub generation: Token,
    /// Whether that tenure is alive now; does not depend on the janitor.
    pub alive: bool,
    /// Whether an operator has released the grant. The place stays taken until the holder has noticed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// The time until another member can acquire the place, if the holder sends no further beat; zero if immediately.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
}

/// A lease and its current state. The fields of one holder are those of the living holder with the highest token; in the
/// listing of one member or tenure, those of that member or tenure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The name, which is that of its target.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token of the grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// The place of that holder, from 0.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u16))]
    pub place: Place,
    /// The generation of that holder's grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub generation: Token,
    /// Whether that tenure is alive now; does not depend on the janitor.
    pub alive: bool,
    /// The time until another member can acquire its place, if the holder sends no further beat; zero if immediately.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
    /// All holders, by place.
    #[serde(default)]
    pub holders: Vec<LeaseHolder>,
    /// The number of places; 1 for an exclusive lease.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u16))]
    pub places: Holders,
    /// The places that are free now.
    #[serde(default)]
    pub free: u32,
    /// The living waiters.
    #[serde(default)]
    pub waiting: u32,
}

impl Lease {
    /// A lease from its holders, by place; `None` without holders. The fields of one holder are those of `of` if it is
    /// one of them, else of the living holder with the highest token, else of the highest token. An operator's release
    /// counts as dead for this choice.
    #[must_use]
    pub fn of_holders(
        lease: LeaseName,
        holders: Vec<LeaseHolder>,
        (places, free, waiting): (Holders, u32, u32),
        of: Option<&TenureId>,
    ) -> Option<Self> {
        let first = |one: &&LeaseHolder| (Some(&one.tenure) == of, one.alive && !one.revoked, one.token);
        let shown = holders.iter().max_by_key(first)?.clone();
        Some(Self {
            lease,
            holder: shown.holder,
            tenure: shown.tenure,
            token: shown.token,
            place: shown.place,
            generation: shown.generation,
            alive: shown.alive,
            expires_in: shown.expires_in,
            holders,
            places,
            free,
            waiting,
        })
    }

    /// An exclusive lease without waiters.
    #[must_use]
    pub fn of_one(lease: LeaseName, holder: LeaseHolder) -> Self {
        let free = u32::from(!holder.alive && holder.expires_in.is_zero());
        Self {
            lease,
            holder: holder.holder.clone(),
            tenure: holder.tenure.clone(),
            token: holder.token,
            place: holder.place,
            generation: holder.generation,
            alive: holder.alive,
            expires_in: holder.expires_in,
            holders: vec![holder],
            places: Holders::ONE,
            free,
            waiting: 0,
        }
    }
}

/// A page of the leases of one tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLeases {
    /// The leases, by name.
    pub page: Page<Lease>,
    /// The revision of the tenure's holdings; zero for a tenure that is not current. If it is equal on every page,
    /// nothing changed in between.
    pub revision: Revision,
}

/// Rejects too many leases.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_leases(count: usize) -> Result<()> {
    if count > MAX_LEASES {
        return Err(Error::invalid(format!(
            "{count} leases in one call; at most {MAX_LEASES}"
        )));
    }
    Ok(())
}

/// [`LeaseStore::lease_of`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOf {
    /// The lease.
    pub lease: LeaseName,
}

/// [`LeaseStore::leases`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// Only the leases of this holder.
    pub holder: Option<MemberId>,
    /// The page.
    pub page: PageRequest,
}

/// [`LeaseStore::held_leases`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasesOf {
    /// The tenure.
    pub tenure: TenureId,
    /// The page.
    pub page: PageRequest,
}

/// The leases of a group.
#[async_trait]
pub trait LeaseStore: Backend {
    /// Acquires leases for a living tenure. Each lease has its own outcome, in request order. Never waits for a sweep:
    /// this call ends a holder past its end time. At most [`MAX_LEASES`]; applied in atomic parts of about 200. A retry
    /// returns `Kept`, so a lost reply is harmless. O(leases).
    ///
    /// # Errors
    /// `Ended` if the tenure is not alive: nothing changed in that part (earlier parts may have been applied; the
    /// janitor releases them). `TooLate`, `Unavailable`, `Invalid` for too many leases.
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        let acquire = Acquire::new(tenure.clone(), leases.to_vec());
        send(self, Some(group), acquire, call).await
    }

    /// [`LeaseStore::acquire`] for shared leases, or with a wait. With a [`Queue`], a lease that is not free is answered
    /// `Waiting`: the request has a place in the queue until it is granted, withdrawn, over, or its tenure ends. Sending
    /// it again keeps the place, with the number and the end of the newest request; sent again with a wait of zero it is
    /// granted the lease, or refused and over. O(leases).
    ///
    /// # Errors
    /// As [`LeaseStore::acquire`]; `Invalid` for a wait for several leases, for one above [`MAX_WAIT`], and for a wait
    /// for a target of a fleet.
    async fn acquire_with(&self, group: &Group, acquire: Acquire, call: Call) -> Result<Acquired> {
        send(self, Some(group), acquire, call).await
    }

    /// Ends a wait: removes the place of exactly this request, or releases the lease if it was granted to exactly this
    /// request. Anything else stays, so a late call is safe. O(log waiters).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`, `Unsupported`.
    async fn withdraw(
        &self,
        group: &Group,
        tenure: &TenureId,
        lease: &LeaseName,
        request: RequestId,
        call: Call,
    ) -> Result<Withdrawn> {
        let (tenure, lease) = (tenure.clone(), lease.clone());
        let withdraw = Withdraw { tenure, lease, request };
        send(self, Some(group), withdraw, call).await
    }

    /// Releases a lease in place of its holder, for an operator. The lease stays taken until the holder has noticed (a
    /// beat names the tenure's revision); if its last beat named a revision, at most until its deadline
    /// at the release; and at most until its tenure ends. Repeating it changes nothing. O(holders).
    ///
    /// # Errors
    /// `NotFound` if the lease is free; `NotOwner` if the named member or token does not hold it; `Invalid` without a
    /// name if it has several holders. `TooLate`, `Unavailable`, `Unsupported`.
    async fn revoke_lease(&self, group: &Group, lease: &LeaseName, of: RevokeOf, call: Call) -> Result<Revoked> {
        let lease = lease.clone();
        send(self, Some(group), RevokeLease { lease, of }, call).await
    }

    /// Waits until the turn of waiting requests of this node has come, at most `patience`, in all groups. Each is
    /// reported at least once; a caller that lost a reply sends all its waiting requests again.
    ///
    /// # Errors
    /// `Unavailable`, `Unsupported`.
    async fn wait_for_grants(&self, node: &NodeId, patience: Duration) -> Result<Vec<WaitingTurn>> {
        let node = node.clone();
        send(self, None, WaitForGrants { node, patience }, Call::default()).await
    }

    /// Releases leases, each by its exact tenure and token, and reserves them for `to` if that is another living
    /// member. Applied in atomic parts of about 200. O(leases).
    ///
    /// # Errors
    /// As [`LeaseStore::acquire`].
    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<ReleasedLeases> {
        let (tenure, leases, to, seen) = (tenure.clone(), leases.to_vec(), to.cloned(), Revision::NONE);
        let release = ReleaseLeases {
            tenure,
            leases,
            to,
            seen,
        };
        self.release_with(group, release, call).await
    }

    /// [`LeaseStore::release_leases`] of a client that names the highest revision it has seen. O(leases).
    ///
    /// # Errors
    /// As [`LeaseStore::acquire`].
    async fn release_with(&self, group: &Group, release: ReleaseLeases, call: Call) -> Result<ReleasedLeases> {
        send(self, Some(group), release, call).await
    }

    /// Reads a lease and whether its holder is alive now; `None` if it is free. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        let lease = lease.clone();
        send(self, Some(group), LeaseOf { lease }, Call::default()).await
    }

    /// Lists the leases of one holder (its current tenure and ended ones that are not released yet), or all. A lease
    /// that is held throughout appears at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let (holder, page) = (holder.cloned(), page.clone());
        send(self, Some(group), Leases { holder, page }, Call::default()).await
    }

    /// Lists exactly the leases of this tenure, for a holder whose state is uncertain. A lease that is held throughout
    /// appears at least once. O(page).
    ///
    /// # Errors
    /// As [`LeaseStore::leases`].
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        let (tenure, page) = (tenure.clone(), page.clone());
        send(self, Some(group), LeasesOf { tenure, page }, Call::default()).await
    }
}

impl<S: Backend> LeaseStore for S {}
