//! The outbox: rows that changed, until somebody says that the mirror has them.

use super::provider::{Provider, Version};
use crate::id::ProviderId;
use crate::time::StoreTime;

/// A row that may not have reached the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// Which.
    pub provider: ProviderId,
    /// The version to clean it with: that of `row`, or that of the tombstone.
    pub version: Version,
    /// Since when it has waited. Young ones are about to be cleaned by whoever wrote them.
    pub since: StoreTime,
    /// The row as it is now; `None` when it was removed.
    pub row: Option<Provider>,
}
