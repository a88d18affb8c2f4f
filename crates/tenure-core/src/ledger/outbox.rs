//! The outbox: changed rows that the mirror has not confirmed.

use super::provider::{Provider, Version};
use crate::id::ProviderId;
use crate::time::StoreTime;

/// A row that may not have reached the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// The provider.
    pub provider: ProviderId,
    /// The version to clean: that of `row` or of the tombstone.
    pub version: Version,
    /// When the change was written. Its writer is about to clean a recent one.
    pub since: StoreTime,
    /// The current row; `None` if it was removed.
    pub row: Option<Provider>,
}
