//! The loop that reloads the token file.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::loops::{LoopBody, Turn};
use tenure_core::error::Result;

use super::guard::TokenFile;

/// Reloads the token file in each turn.
pub(crate) struct TokenWatch(pub(crate) Arc<TokenFile>);

#[async_trait]
impl LoopBody for TokenWatch {
    async fn turn(&mut self) -> Result<Turn> {
        let token_file = Arc::clone(&self.0);
        let refreshed = tokio::task::spawn_blocking(move || token_file.refresh().is_err()).await;
        // An invalid file was reported already, and is not read more often for it.
        let skipped = u64::from(refreshed.unwrap_or(true));
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}
