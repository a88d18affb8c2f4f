//! Settling a group on the wire: an operator's statement that nothing was held.

use serde::{Deserialize, Serialize};
use tenure_core::settling::GapCause;

/// `POST …/settle`; the body may be omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleRequest {
    /// The cause of the grace periods to end: `silent`, `clock_back`, `data_loss` or `tail_loss`; default `new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
}
