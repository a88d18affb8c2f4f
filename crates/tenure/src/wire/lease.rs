//! Leases on the wire.

mod acquire;
mod release;

pub use acquire::{
    AcquireAnswer, AcquireLeasesAnswer, AcquireLeasesRequest, AcquireRequest, AcquireResult, AcquireWord,
};
pub use release::{
    LeaseToRelease, ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeaseResult, ReleaseLeasesAnswer,
    ReleaseLeasesRequest, ReleaseWord,
};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{self as core, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::micros;

use super::ms;

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
