//! Tasks that one instance does for all.

use std::time::Duration;

use crate::call::Limits;
use crate::error::{Error, Result};
use crate::time::StoreTime;

/// What is to be done for a roster now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// Comparing the mirror with the ledger, or filling it.
    Reconcile,
    /// Writing down in the ledger who was heard of.
    Heartbeats,
}

impl Task {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Reconcile, Self::Heartbeats];

    /// Its name, in the store and on status pages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Heartbeats => "heartbeats",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.as_str() == name)
    }
}

/// A request for the turn at a task. One's own turn is prolonged by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// At which.
    pub task: Task,
    /// A name for oneself; letters, digits, `-`, at most 64.
    pub holder: String,
    /// After which time somebody else may take it.
    pub lasts: Duration,
    /// Do not take it when it was done less long ago than this.
    pub every: Duration,
}

impl Limits for TurnRequest {
    fn check(&self, _: Duration) -> Result<()> {
        check_holder(&self.holder)
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// One's own, until then.
    Mine(StoreTime),
    /// Somebody else's, until then at the latest.
    Others(StoreTime),
    /// Nobody's: it was done lately, and is due again then.
    DoneUntil(StoreTime),
}

/// Refuses a name that a store could not keep beside what else it keeps of a turn.
///
/// # Errors
/// `Invalid`, with the name.
pub fn check_holder(holder: &str) -> Result<()> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=64).contains(&holder.len()) && holder.bytes().all(good) {
        return Ok(());
    }
    let shown: String = holder.chars().take(64).collect();
    Err(Error::invalid(format!(
        "{shown:?} is no name of a holder of a turn; use 1 to 64 letters, digits and -"
    )))
}
