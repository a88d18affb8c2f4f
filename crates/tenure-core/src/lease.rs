//! Leases: who holds a target, and with which fencing token.
//!
//! A lease is a holding like any other: it lives as long as its holder's tenure and is kept alive by the holder's
//! beats, however many leases it holds. What sets it apart is that two holders at once are never acceptable. So a lease
//! is granted only when nobody else can still be working under it (see [`AcquireOutcome`]), every grant carries a token
//! that is higher than all before, and a group that may have forgotten a grant gives out nothing until its grace is over.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName, MemberId, TenureId, Term};
use crate::membership::Revision;
use crate::settling::GapCause;
use crate::store::{Backend, Call, Page, PageRequest};
use crate::time::StoreTime;

/// The most leases in one call.
pub const MAX_LEASES: usize = 10_000;
/// How long a lease that was handed off waits for its successor before anybody may take it.
pub const RESERVATION: Duration = Duration::from_secs(5);

/// A fencing token: a strictly rising integer per group, below 2^53. A sink that remembers the highest token it has seen
/// can refuse a holder that lost its lease without knowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Token(u64);

impl Token {
    /// Takes a token from its number.
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

/// What asking for a lease came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// It is ours from now on.
    Granted {
        /// Higher than every token before it.
        token: Token,
        /// The ended tenure it was taken over from, when the janitor had not come yet.
        from: Option<TenureId>,
    },
    /// It was ours already, with this token.
    Kept {
        /// The token of the grant.
        token: Token,
    },
    /// Somebody else holds it. Also when that tenure was superseded or expelled: its process may still run, so the lease
    /// is given out only after that tenure's last deadline.
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

impl AcquireOutcome {
    /// The token, when the lease is ours.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. } | Self::Kept { token } => Some(*token),
            _ => None,
        }
    }
}

/// The answers to a request for leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// One each, in the order asked.
    pub outcomes: Vec<AcquireOutcome>,
    /// How long the asking tenure lasts without another beat.
    pub expires_in: Duration,
    /// What the tenure holds now goes by this number.
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what the client was told last: the store lost the end
    /// of its data.
    pub before: Revision,
    /// The store's time.
    pub as_of: StoreTime,
}

/// What giving a lease up came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is free. Also when nobody held it.
    Released,
    /// It is free, and kept for the successor for [`RESERVATION`].
    Reserved,
    /// Another tenure holds it, or this one does under another token. Nothing changed.
    NotHolder {
        /// Who does.
        by: TenureId,
    },
}

/// The answers to a request to give leases up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// One each, in the order asked.
    pub outcomes: Vec<ReleaseOutcome>,
    /// What the tenure holds now goes by this number.
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what the client was told last: the store lost the end
    /// of its data.
    pub before: Revision,
    /// The store's time.
    pub as_of: StoreTime,
}

/// A lease as the store sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Its name: the target it is about.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token of the grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// Whether that tenure is alive now. Never waits for a janitor.
    pub alive: bool,
    /// When another member can have it, if the holder is not heard of again; zero when at once.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
}

/// A page of what one tenure holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLeases {
    /// The leases, by name.
    pub page: Page<Lease>,
    /// The number of what the tenure holds. When it is the same on every page, nothing changed in between. Zero for a
    /// tenure that is not current.
    pub revision: Revision,
}

/// Refuses too many leases.
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
    /// Under which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000. With none, the tenure alone is checked.
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
    /// The tenure that gives them up.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000, each with the token it was granted with.
    #[serde(with = "to_release")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<LeaseToRelease>))]
    pub leases: Vec<(LeaseName, Token)>,
    /// Hand them off: keep them for this member for five seconds, if that is another one that is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
}

/// One lease of many to give up, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct LeaseToRelease {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    lease: LeaseName,
    /// The token it was granted with.
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
        GivenUp {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }
    }
}

/// [`LeaseStore::lease_of`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOf {
    /// Which.
    pub lease: LeaseName,
}

/// [`LeaseStore::leases`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// Of one holder alone.
    pub holder: Option<MemberId>,
    /// Which page.
    pub page: PageRequest,
}

/// [`LeaseStore::held_leases`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasesOf {
    /// Whose.
    pub tenure: TenureId,
    /// Which page.
    pub page: PageRequest,
}

/// Who holds what, exclusively.
#[async_trait]
pub trait LeaseStore: Backend {
    /// Asks for leases under a living tenure, each answered by itself, in the order asked. Never waits for a sweep: a
    /// holder that is met past its end is ended by this call. At most [`MAX_LEASES`]; applied in atomic parts of about
    /// 200. Asking again for what is ours answers `Kept`, so a lost reply costs nothing. O(leases).
    ///
    /// # Errors
    /// `Ended` when the tenure is not alive: nothing changed in that part (parts before it may have been applied, and
    /// belong to the janitor now). `TooLate`, `Unavailable`, `Invalid` for too many leases.
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        let (tenure, leases) = (tenure.clone(), leases.to_vec());
        ask(self, Some(group), Acquire { tenure, leases }, call).await
    }

    /// Gives leases up, each by its exact tenure and token, and keeps them for `to` when that is another living member.
    /// Applied in atomic parts of about 200. O(leases).
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
    ) -> Result<GivenUp> {
        let (tenure, leases, to) = (tenure.clone(), leases.to_vec(), to.cloned());
        ask(self, Some(group), ReleaseLeases { tenure, leases, to }, call).await
    }

    /// Looks a lease up, together with whether its holder is alive now. `None` when it is free. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        let lease = lease.clone();
        ask(self, Some(group), LeaseOf { lease }, Call::default()).await
    }

    /// Lists leases, of one holder (its current tenure and ended ones not yet released) or all. A lease held throughout
    /// is listed at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let (holder, page) = (holder.cloned(), page.clone());
        ask(self, Some(group), Leases { holder, page }, Call::default()).await
    }

    /// Lists what exactly this tenure holds, for a holder that is in doubt. A lease held throughout is listed at least
    /// once. O(page).
    ///
    /// # Errors
    /// As [`LeaseStore::leases`].
    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        let (tenure, page) = (tenure.clone(), page.clone());
        ask(self, Some(group), LeasesOf { tenure, page }, Call::default()).await
    }
}

impl<S: Backend> LeaseStore for S {}
