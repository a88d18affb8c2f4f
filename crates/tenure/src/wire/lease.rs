//! Leases on the wire.

mod acquire;
mod release;

pub use acquire::{AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireResult, AcquireWord};
pub use release::{ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeaseResult, ReleaseLeasesAnswer, ReleaseWord};

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{MemberId, TenureId};
use tenure_core::lease::HeldLeases;
pub use tenure_core::lease::Lease;
use tenure_core::membership::Revision;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};

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
