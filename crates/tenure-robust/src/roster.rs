//! Rosters: providers that go online and offline, dispatchers that reserve them, an operator that shuts some out, and checks
//! of what the ledger, its mirror and its log say in the end.

mod act;
mod api;
pub mod check;
mod ledger;
pub mod round;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::history::Micros;

pub use act::{Dispatcher, Operator, Provider};
pub use api::RosterApi;
pub use ledger::{Entry, Ledger};

/// The roster that everything happens in.
pub const ROSTER: &str = "desk";
/// How many providers there are.
pub const PROVIDERS: usize = 6;
/// How many places each has.
pub const CAPACITY: usize = 2;
/// How long a provider lives without a heartbeat.
pub const STALE: Duration = Duration::from_millis(2_500);

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A provider goes online.
    Online,
    /// A provider goes offline.
    Offline,
    /// A provider is alive.
    Heartbeat,
    /// An operator lets a provider work again.
    Activate,
    /// An operator shuts a provider out.
    Deactivate,
    /// An engagement with a provider that has room.
    Reserve,
    /// An engagement is over.
    End,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done(Done),
    /// Certainly nothing happened, for this reason.
    Refused(String),
    /// It may have happened.
    Unknown,
}

/// What an answer says of what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Whether this call changed something.
    pub is_changed: bool,
    /// The version of the row.
    pub version: u64,
    /// Whether the hot store has it.
    pub is_mirrored: bool,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Deed {
    /// When it was sent.
    pub begin: Micros,
    /// When its outcome was known, or the last instant at which it could take effect.
    pub end: Micros,
    /// What was asked for.
    pub act: Act,
    /// The provider, if it is known.
    pub provider: String,
    /// The engagement, if it is about one.
    pub engagement: String,
    /// What came of it.
    pub reply: Reply,
}

impl Deed {
    /// What the answer says, if it was done.
    #[must_use]
    pub fn done(&self) -> Option<&Done> {
        match &self.reply {
            Reply::Done(done) => Some(done),
            _ => None,
        }
    }
}

/// The calls of all clients.
#[derive(Debug, Clone, Default)]
pub struct Deeds(Arc<Mutex<Vec<Deed>>>);

impl Deeds {
    /// Adds a call.
    pub fn add(&self, deed: Deed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(deed);
    }

    /// The calls so far, by begin.
    #[must_use]
    pub fn all(&self) -> Vec<Deed> {
        let mut deeds = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        deeds.sort_by_key(|deed| (deed.begin, deed.end));
        deeds
    }
}

/// The name of a provider.
#[must_use]
pub fn provider(number: usize) -> String {
    format!("p{number}")
}
