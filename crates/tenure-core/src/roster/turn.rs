//! Tasks that one instance does for all.

use std::time::Duration;

use crate::call::Limits;
use crate::error::{Error, Result};
use crate::time::StoreTime;

/// A periodic task of a roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// Comparing the mirror with the ledger, or filling it.
    Reconcile,
    /// Recording heartbeats in the ledger.
    Heartbeats,
}

impl Task {
    /// All tasks.
    pub const ALL: [Self; 2] = [Self::Reconcile, Self::Heartbeats];

    /// The name, in the store and on status pages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Heartbeats => "heartbeats",
        }
    }

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.as_str() == name)
    }
}

/// A request for the turn at a task. Extends the caller's own turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// The task.
    pub task: Task,
    /// The caller's name: letters, digits and `-`, at most 64.
    pub holder: String,
    /// The duration of the turn, after which another instance may take it.
    pub lasts: Duration,
    /// Take the turn only if the task was done at least this long ago.
    pub every: Duration,
}

impl Limits for TurnRequest {
    fn check(&self, _: Duration) -> Result<()> {
        check_holder(&self.holder)
    }
}

/// The holder of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The caller, until then.
    Mine(StoreTime),
    /// Another instance, until then at the latest.
    Others(StoreTime),
    /// No instance: the task was done recently and is due then.
    DoneUntil(StoreTime),
}

/// Rejects an invalid holder name.
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
        "invalid turn holder {shown:?}; use 1 to 64 letters, digits and -"
    )))
}
