//! Leases on the wire.

mod acquire;
mod release;

pub use acquire::{AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireResult, AcquireWord};
pub use release::{ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeaseResult, ReleaseLeasesAnswer, ReleaseWord};

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{MemberId, TenureId};
pub use tenure_core::lease::Lease;
use tenure_core::lease::{HeldLeases, RevokeOf, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};

/// A page of leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasesPage {
    /// The leases.
    pub leases: Vec<Lease>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `tenure`: the revision of that tenure's holdings; absent if the tenure is not current or never held
    /// anything. If it is equal on all pages, nothing changed in between.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

impl From<Page<Lease>> for LeasesPage {
    fn from(page: Page<Lease>) -> Self {
        Self {
            leases: page.items,
            next: page.next,
            revision: Revision::NONE,
        }
    }
}

impl From<HeldLeases> for LeasesPage {
    fn from(held: HeldLeases) -> Self {
        Self {
            revision: held.revision,
            ..held.page.into()
        }
    }
}

impl From<LeasesPage> for HeldLeases {
    fn from(page: LeasesPage) -> Self {
        Self {
            page: Page {
                items: page.leases,
                next: page.next,
            },
            revision: page.revision,
        }
    }
}

/// Query of the lease listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct LeasesQuery {
    /// Only leases of this member, under its current tenure and under ended ones that are not released yet.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// Only leases of exactly this tenure; the answer then has its `revision`. Not together with `holder`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// The `next` of the previous page.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// Page size, 1 to 1,000; default 100.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

/// `DELETE …/leases/{l}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct RevokeQuery {
    /// The member whose grant is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// The token of the grant that is released. Not together with `holder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u64>))]
    pub token: Option<u64>,
}

impl RevokeQuery {
    /// Converts to the grant to release.
    ///
    /// # Errors
    /// `Invalid` for a holder together with a token, and for a number that is no token.
    pub fn of(self) -> Result<RevokeOf> {
        match (self.holder, self.token) {
            (None, None) => Ok(RevokeOf::Any),
            (Some(holder), None) => Ok(RevokeOf::Holder(holder)),
            (None, Some(token)) => Token::new(token).map(RevokeOf::Token),
            (Some(_), Some(_)) => Err(Error::invalid(
                "in the query: holder and token cannot be combined; give one of them",
            )),
        }
    }
}

/// The leases to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseFilter {
    /// All leases.
    All,
    /// Those of a member.
    Holder(MemberId),
    /// Those of one tenure.
    Tenure(TenureId),
}

impl LeasesQuery {
    /// Converts to a filter and a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, or a holder together with a tenure.
    pub fn request(self) -> Result<(LeaseFilter, PageRequest)> {
        let whose = match (self.holder, self.tenure) {
            (None, None) => LeaseFilter::All,
            (Some(holder), None) => LeaseFilter::Holder(holder),
            (None, Some(tenure)) => LeaseFilter::Tenure(tenure),
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "in the query: holder and tenure cannot be combined; give one of them",
                ));
            }
        };
        Ok((whose, PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?))
    }
}
