//! Leases: the exclusive holder of each target, and its fencing token.
//!
//! A lease is a holding: it lives as long as its holder's tenure, and one beat renews all leases of the holder. Unlike
//! other holdings, it must never have two holders. So the store grants a lease only when no other process can still
//! work under it (see [`AcquireOutcome`]), every grant has a token above all earlier ones, and a group that may have
//! forgotten a grant issues none until its grace is over.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, send};
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName, MemberId, TenureId, Term};
use crate::membership::Revision;
use crate::settling::GapCause;
use crate::store::{Backend, Call, Page, PageRequest};
use crate::time::StoreTime;

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

/// The result of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The caller holds the lease from now on.
    Granted {
        /// Higher than every earlier token.
        token: Token,
        /// The ended tenure that held it until this call, if the janitor had not released it.
        from: Option<TenureId>,
    },
    /// The caller already held the lease, with this token.
    Kept {
        /// The token of the grant.
        token: Token,
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
}

impl AcquireOutcome {
    /// The token, if the caller holds the lease.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. } | Self::Kept { token } => Some(*token),
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
    /// The revision of the tenure's holdings.
    pub revision: Revision,
    /// The revision before this call. If it is lower than the one the client received last, the store lost its tail.
    pub before: Revision,
    /// The store time of the reply.
    pub as_of: StoreTime,
}

/// The result of releasing a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is free; also if it was not held.
    Released,
    /// It is reserved for the successor for [`RESERVATION`].
    Reserved,
    /// Another tenure holds it, or this one holds it with another token. Nothing changed.
    NotHolder {
        /// The holder.
        by: TenureId,
    },
}

/// The reply to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleasedLeases {
    /// One outcome per lease, in request order.
    pub outcomes: Vec<ReleaseOutcome>,
    /// The revision of the tenure's holdings.
    pub revision: Revision,
    /// The revision before this call. If it is lower than the one the client received last, the store lost its tail.
    pub before: Revision,
    /// The store time of the reply.
    pub as_of: StoreTime,
}

/// A lease and its current state.
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
    /// Whether that tenure is alive now; does not depend on the janitor.
    pub alive: bool,
    /// The time until another member can acquire it, if the holder sends no further beat; zero if immediately.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
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

/// [`LeaseStore::acquire`] as a value; also the body of `POST …/leases-acquire`.
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
}

impl Limits for Acquire {
    fn check(&self, _: Duration) -> Result<()> {
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

/// [`LeaseStore::release_leases`] as a value; also the body of `POST …/leases-release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeases {
    /// The releasing tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000, each with the token of its grant.
    #[serde(with = "to_release")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<LeaseToRelease>))]
    pub leases: Vec<(LeaseName, Token)>,
    /// Hands the leases off: reserves them for this member for five seconds, if it is another living one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
}

/// A lease to release, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct LeaseToRelease {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    lease: LeaseName,
    /// The token of its grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_i64))]
    token: Token,
}

mod to_release {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{LeaseName, LeaseToRelease, Token};

    pub(super) fn serialize<S: Serializer>(leases: &[(LeaseName, Token)], serializer: S) -> Result<S::Ok, S::Error> {
        let items = leases.iter().cloned();
        serializer.collect_seq(items.map(|(lease, token)| LeaseToRelease { lease, token }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(LeaseName, Token)>, D::Error> {
        let items = Vec::<LeaseToRelease>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|item| (item.lease, item.token)).collect())
    }
}

impl Limits for ReleaseLeases {
    fn check(&self, _: Duration) -> Result<()> {
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
        ReleasedLeases {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }
    }
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
        let (tenure, leases) = (tenure.clone(), leases.to_vec());
        send(self, Some(group), Acquire { tenure, leases }, call).await
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
        let (tenure, leases, to) = (tenure.clone(), leases.to_vec(), to.cloned());
        send(self, Some(group), ReleaseLeases { tenure, leases, to }, call).await
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
