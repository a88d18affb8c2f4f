//! The release of a lease by an operator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Token;
use crate::id::{LeaseName, MemberId, TenureId};

/// [`LeaseStore::revoke_lease`](super::LeaseStore::revoke_lease) as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeLease {
    /// The lease.
    pub lease: LeaseName,
    /// The grant to release.
    pub of: RevokeOf,
}

/// The grant that an operator releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevokeOf {
    /// That of this member.
    Holder(MemberId),
    /// That with this token.
    Token(Token),
    /// The only one. `Invalid` if the lease has several holders.
    Any,
}

/// When a lease that an operator released becomes free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FreeWhen {
    /// When a beat shows that the holder has noticed, or at the deadline that the holder had at the release.
    Noticed,
    /// When the holder's tenure ends, because the holder's beats name no revision and it cannot notice.
    TenureEnds,
}

/// The result of a release by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that held it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure that held it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The token of the released grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// When the lease becomes free.
    pub free_when: FreeWhen,
    /// The latest time until it is free: with `noticed` for certain, with `tenure_ends` if the holder sends no further
    /// beat.
    #[serde(rename = "free_in_ms", with = "crate::millis::up")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub free_in: Duration,
}
