//! The body of a loop.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// Latest time of the next turn; the maximal interval when `None`.
    pub next: Option<Duration>,
    /// Items left for a later turn because they failed. If there are any, the outcome is `partial`.
    pub skipped: u64,
    /// The dependency of the loop was unavailable, so nothing could be done. Such a turn counts neither as success nor
    /// as failure: a failing loop stays failing, and the time of the last success stays.
    pub stalled: bool,
}

impl Turn {
    /// Everything is done; nothing is due.
    #[must_use]
    pub fn idle() -> Self {
        Self::default()
    }

    /// Everything is done; the next work is due after `wait`.
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
    /// Does the due work. Keep it bounded: a shutdown waits for it.
    ///
    /// # Errors
    /// Any error; the turn is retried with backoff. A single bad item is a skipped item, not a failed turn.
    async fn turn(&mut self) -> Result<Turn>;
}
