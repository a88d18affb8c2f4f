//! Getting a tenure for a provider.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::TenureId;

/// The ttl of providers who need no heartbeat: ten years.
pub const NEVER_STALE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Refuses a ttl that no roster has.
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

/// A provider who has a tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seated {
    /// The tenure that is alive now.
    pub tenure: TenureId,
    /// Whether it began just now.
    pub new: bool,
}
