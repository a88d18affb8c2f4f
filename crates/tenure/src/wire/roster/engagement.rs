//! Engagements on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::id::EngagementId;
use tenure_core::ledger::{NewEngagement, Status};

use super::super::ms;

/// `POST …/engagements`.
pub type EngagementRequest = NewEngagement<Option<EngagementId>>;

/// `POST …/reserve`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReserveRequest {
    /// What it is for: a new name, or that of an open engagement without a provider. Made up when not given; with a name,
    /// asking again after an answer that was lost is safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub engagement: Option<EngagementId>,
    /// `pending` (when not given) or `active`, if the engagement is new.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Status,
    /// After which time it expires, if the engagement is new; never by itself when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl From<ReserveRequest> for EngagementRequest {
    fn from(request: ReserveRequest) -> Self {
        Self {
            engagement: request.engagement,
            provider: None,
            status: request.status,
            expires_in: request.expires_in_ms.map(Duration::from_millis),
        }
    }
}

impl From<NewEngagement> for ReserveRequest {
    fn from(new: NewEngagement) -> Self {
        Self {
            engagement: Some(new.engagement),
            status: new.status,
            expires_in_ms: new.expires_in.map(ms),
        }
    }
}
