//! Releasing leases.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Token, check_leases};
use crate::call::Limits;
use crate::error::Result;
use crate::id::{LeaseName, MemberId, TenureId};
use crate::membership::Revision;
use crate::time::StoreTime;

/// The result of releasing a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is free; also if it was not held.
    Released,
    /// It is reserved for the successor for [`RESERVATION`](super::RESERVATION).
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

/// [`LeaseStore::release_leases`](super::LeaseStore::release_leases) as a value; also the body of `POST …/leases-release`.
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
    /// The highest revision of any answer under this tenure, as in a beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
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
