//! Tenures of providers.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::TenureId;

/// The ttl of a provider that needs no heartbeat: ten years.
pub const NEVER_STALE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Rejects a ttl out of range.
///
/// # Errors
/// `Invalid`, with the limits.
pub fn check_stale_after(stale_after: Duration) -> Result<()> {
    if (crate::timing::MIN_TTL..=NEVER_STALE).contains(&stale_after) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "stale after {stale_after:?} is outside 1s to ten years"
    )))
}

/// The living tenure of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnsuredTenure {
    /// The tenure.
    pub tenure: TenureId,
    /// Whether the call created it.
    pub new: bool,
}
