//! Leases on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{self as core, AcquireOutcome, Acquired, GivenUp, ReleaseOutcome, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::{StoreTime, micros};

use super::{ms, ms_up};

/// `POST …/leases/{l}/acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireRequest {
    /// Under which tenure.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
}

/// `POST …/leases-acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireLeasesRequest {
    /// Under which tenure.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000. With none, the tenure alone is checked.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub leases: Vec<LeaseName>,
}

/// What asking for a lease came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AcquireWord {
    /// It is that tenure's from now on.
    Granted,
    /// It was that tenure's already.
    Kept,
    /// Somebody else holds it. Nothing changed.
    Held,
    /// It is kept for a successor who has not come for it yet. Nothing changed.
    Reserved,
    /// It is free, but the group is inside a grace period and may have forgotten a holder. Nothing changed.
    Unsettled,
}

/// A lease that was acquired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token: higher than every token before it in this group, below 2^53.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// How long the tenure lasts without a beat, and the lease with it. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// `granted` or `kept`.
    pub outcome: AcquireWord,
    /// With `granted`: the ended tenure it was taken over from, when the janitor had not come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// What asking for one lease of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// What became of it.
    pub outcome: AcquireWord,
    /// With `granted` and `kept`: the fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// With `granted`: the ended tenure it was taken over from, when the janitor had not come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// With `held`: by whom. That tenure may have ended; its process may still run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub held_by: Option<TenureId>,
    /// With `reserved`: for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reserved_for: Option<MemberId>,
    /// With `held`, `reserved` and `unsettled`: when asking again makes sense, if nothing is heard until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The same in microseconds, the resolution of the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_us: Option<u64>,
}

impl AcquireResult {
    /// Puts the answer for one lease together.
    #[must_use]
    pub fn new(lease: LeaseName, outcome: AcquireOutcome) -> Self {
        let word = match &outcome {
            AcquireOutcome::Granted { .. } => AcquireWord::Granted,
            AcquireOutcome::Kept { .. } => AcquireWord::Kept,
            AcquireOutcome::Held { .. } => AcquireWord::Held,
            AcquireOutcome::Reserved { .. } => AcquireWord::Reserved,
            AcquireOutcome::Unsettled { .. } => AcquireWord::Unsettled,
        };
        let mut result = Self {
            lease,
            outcome: word,
            token: outcome.token(),
            from: None,
            held_by: None,
            reserved_for: None,
            retry_after_ms: None,
            retry_after_us: None,
        };
        let wait = match outcome {
            AcquireOutcome::Granted { from, .. } => {
                result.from = from;
                return result;
            }
            AcquireOutcome::Kept { .. } => return result,
            AcquireOutcome::Held { by, free_in } => {
                result.held_by = Some(by);
                free_in
            }
            AcquireOutcome::Reserved { to, free_in } => {
                result.reserved_for = Some(to);
                free_in
            }
            AcquireOutcome::Unsettled { retry_in } => retry_in,
        };
        result.retry_after_ms = Some(ms_up(wait));
        result.retry_after_us = Some(micros(wait));
        result
    }

    /// What it means to a Rust caller; `None` when a part is missing or a token is none.
    #[must_use]
    pub fn outcome(self) -> Option<AcquireOutcome> {
        let token = self.token.and_then(|token| Token::new(token.get()).ok());
        let wait = self
            .retry_after_us
            .map(Duration::from_micros)
            .or(self.retry_after_ms.map(Duration::from_millis));
        Some(match self.outcome {
            AcquireWord::Granted => AcquireOutcome::Granted {
                token: token?,
                from: self.from,
            },
            AcquireWord::Kept => AcquireOutcome::Kept { token: token? },
            AcquireWord::Held => AcquireOutcome::Held {
                by: self.held_by?,
                free_in: wait?,
            },
            AcquireWord::Reserved => AcquireOutcome::Reserved {
                to: self.reserved_for?,
                free_in: wait?,
            },
            AcquireWord::Unsettled => AcquireOutcome::Unsettled { retry_in: wait? },
        })
    }
}

/// The answers to a request for many leases, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireLeasesAnswer {
    /// One each.
    pub results: Vec<AcquireResult>,
    /// How long the asking tenure lasts without a beat. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// The same in microseconds.
    pub expires_in_us: u64,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl AcquireLeasesAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(leases: Vec<LeaseName>, acquired: Acquired) -> Self {
        let results = leases.into_iter().zip(acquired.outcomes);
        Self {
            results: results
                .map(|(lease, outcome)| AcquireResult::new(lease, outcome))
                .collect(),
            expires_in_ms: ms(acquired.expires_in),
            expires_in_us: micros(acquired.expires_in),
            revision: acquired.revision,
            as_of: acquired.as_of,
        }
    }

    /// What it means to a Rust caller who asked for these leases; `None` when it is not an answer to that.
    #[must_use]
    pub fn acquired(self, asked: &[LeaseName]) -> Option<Acquired> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, lease)| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(AcquireResult::outcome).collect();
        Some(Acquired {
            outcomes: outcomes.filter(|_| in_order)?,
            expires_in: Duration::from_micros(self.expires_in_us),
            revision: self.revision,
            as_of: self.as_of,
        })
    }
}

/// `POST …/leases/{l}/release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseRequest {
    /// The tenure that gives it up.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The token it was granted with.
    #[serde(deserialize_with = "super::token")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_i64))]
    pub token: Token,
    /// Hand it off: keep it for this member for five seconds, if that is another one that is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
}

/// One lease of many to give up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseToRelease {
    /// The lease.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The token it was granted with.
    #[serde(deserialize_with = "super::token")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_i64))]
    pub token: Token,
}

/// `POST …/leases-release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeasesRequest {
    /// The tenure that gives them up.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000.
    pub leases: Vec<LeaseToRelease>,
    /// As for a single lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
}

/// What giving a lease up came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReleaseWord {
    /// It is free. Also when nobody held it.
    Released,
    /// It is free, and kept for the successor for a while.
    Reserved,
    /// Another tenure holds it, or this one does under another token. Nothing changed.
    NotHolder,
}

/// A lease that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// `released` or `reserved`.
    pub outcome: ReleaseWord,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// What giving up one lease of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// What became of it.
    pub outcome: ReleaseWord,
    /// With `not_holder`: who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub held_by: Option<TenureId>,
}

impl ReleaseLeaseResult {
    /// Puts the answer for one lease together.
    #[must_use]
    pub fn new(lease: LeaseName, outcome: ReleaseOutcome) -> Self {
        let (outcome, held_by) = match outcome {
            ReleaseOutcome::Released => (ReleaseWord::Released, None),
            ReleaseOutcome::Reserved => (ReleaseWord::Reserved, None),
            ReleaseOutcome::NotHolder { by } => (ReleaseWord::NotHolder, Some(by)),
        };
        Self {
            lease,
            outcome,
            held_by,
        }
    }

    /// What it means to a Rust caller; `None` when a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<ReleaseOutcome> {
        match self.outcome {
            ReleaseWord::Released => Some(ReleaseOutcome::Released),
            ReleaseWord::Reserved => Some(ReleaseOutcome::Reserved),
            ReleaseWord::NotHolder => self.held_by.map(|by| ReleaseOutcome::NotHolder { by }),
        }
    }
}

/// The answers to a request to give many leases up, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeasesAnswer {
    /// One each.
    pub results: Vec<ReleaseLeaseResult>,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl ReleaseLeasesAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(leases: impl IntoIterator<Item = LeaseName>, given: GivenUp) -> Self {
        let results = leases.into_iter().zip(given.outcomes);
        Self {
            results: results
                .map(|(lease, outcome)| ReleaseLeaseResult::new(lease, outcome))
                .collect(),
            revision: given.revision,
            as_of: given.as_of,
        }
    }

    /// What it means to a Rust caller who gave these leases up; `None` when it is not an answer to that.
    #[must_use]
    pub fn given_up(self, asked: &[(LeaseName, Token)]) -> Option<GivenUp> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, (lease, _))| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(ReleaseLeaseResult::outcome).collect();
        Some(GivenUp {
            outcomes: outcomes.filter(|_| in_order)?,
            revision: self.revision,
            as_of: self.as_of,
        })
    }
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
    #[serde(deserialize_with = "super::token")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// Whether that tenure is alive now. Never waits for a janitor.
    pub alive: bool,
    /// When another member can have it, if the holder is not heard of again; 0 when at once.
    pub expires_in_ms: u64,
    /// The same in microseconds, the resolution of the store's clock.
    pub expires_in_us: u64,
}

impl From<core::Lease> for Lease {
    fn from(lease: core::Lease) -> Self {
        Self {
            lease: lease.lease,
            holder: lease.holder,
            tenure: lease.tenure,
            token: lease.token,
            alive: lease.alive,
            expires_in_ms: ms(lease.expires_in),
            expires_in_us: micros(lease.expires_in),
        }
    }
}

impl From<Lease> for core::Lease {
    fn from(lease: Lease) -> Self {
        Self {
            lease: lease.lease,
            holder: lease.holder,
            tenure: lease.tenure,
            token: lease.token,
            alive: lease.alive,
            expires_in: Duration::from_micros(lease.expires_in_us),
        }
    }
}

/// Leases, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasesPage {
    /// The leases.
    pub leases: Vec<Lease>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `tenure`: what that tenure holds goes by this number; absent when it is not current, or never held anything.
    /// When it is the same on every page, nothing changed in between.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

impl From<Page<core::Lease>> for LeasesPage {
    fn from(page: Page<core::Lease>) -> Self {
        Self {
            leases: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
            revision: Revision::NONE,
        }
    }
}

impl From<core::HeldLeases> for LeasesPage {
    fn from(held: core::HeldLeases) -> Self {
        Self {
            revision: held.revision,
            ..held.page.into()
        }
    }
}

impl From<LeasesPage> for core::HeldLeases {
    fn from(page: LeasesPage) -> Self {
        Self {
            page: Page {
                items: page.leases.into_iter().map(Into::into).collect(),
                next: page.next,
            },
            revision: page.revision,
        }
    }
}

/// Which leases to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct LeasesQuery {
    /// Only what this member holds, under its current tenure and under ended ones that are not released yet.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// Only what exactly this tenure holds; the answer tells its `revision` as well. Not together with `holder`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// The `next` of the page before.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

/// Whose leases to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Everybody's.
    All,
    /// A member's.
    Holder(MemberId),
    /// Exactly one tenure's.
    Tenure(TenureId),
}

impl LeasesQuery {
    /// Whose leases, and the page it asks for.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, or a holder and a tenure at once.
    pub fn request(self) -> Result<(Whose, PageRequest)> {
        let whose = match (self.holder, self.tenure) {
            (None, None) => Whose::All,
            (Some(holder), None) => Whose::Holder(holder),
            (None, Some(tenure)) => Whose::Tenure(tenure),
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "in the query: ask for a holder or for a tenure, not for both",
                ));
            }
        };
        Ok((whose, PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?))
    }
}
