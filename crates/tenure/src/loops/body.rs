//! What a loop does, one turn at a time.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;

/// How a turn went and when the next one is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// When to turn again at the latest; the maximal interval when `None`.
    pub next: Option<Duration>,
    /// Items that could not be handled and were left for a later turn. Any makes the outcome `partial`.
    pub skipped: u64,
    /// Nothing could be done, because what the loop works on is away. Such a turn is neither a success nor a failure: a
    /// loop that was failing still fails, and the time of the last success stays.
    pub stalled: bool,
}

impl Turn {
    /// All done, nothing due.
    #[must_use]
    pub fn idle() -> Self {
        Self::default()
    }

    /// All done, and something is due in a while.
    #[must_use]
    pub fn again_in(wait: Duration) -> Self {
        Self {
            next: Some(wait),
            ..Self::default()
        }
    }
}

/// The body of a loop.
#[async_trait]
pub trait LoopBody: Send + 'static {
    /// Does what is due. It should take a bounded time: a shutdown waits for it.
    ///
    /// # Errors
    /// Whatever failed; the turn is tried again with backoff. One bad item is not a failed turn but a skipped item.
    async fn turn(&mut self) -> Result<Turn>;
}
