//! An operator's word that nothing was held, on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::settling::GapCause;

/// `POST …/settle`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleRequest {
    /// The cause of the graces to end: `silent`, `clock_back`, `data_loss` or `tail_loss`. Those whose cause is `new` when not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
}
