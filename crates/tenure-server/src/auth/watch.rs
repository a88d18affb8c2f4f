//! The loop that looks at the file of tokens.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::loops::{LoopBody, Turn};
use tenure_core::error::Result;

use super::guard::Keeper;

/// Looks at the file at every turn.
pub(crate) struct TokenWatch(pub(crate) Arc<Keeper>);

#[async_trait]
impl LoopBody for TokenWatch {
    async fn turn(&mut self) -> Result<Turn> {
        let keeper = Arc::clone(&self.0);
        let refreshed = tokio::task::spawn_blocking(move || keeper.refresh().is_err()).await;
        // A file that cannot be used has been reported, and is no reason to look at it more often.
        let skipped = u64::from(refreshed.unwrap_or(true));
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}
