//! The poll of a ledger: the state of all rosters in one reply.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::RosterSettings;
use crate::id::RosterName;
use crate::time::StoreTime;

/// The state of all rosters at one time. A process that maintains mirrors polls it, so an idle roster costs no
/// statement of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// The ledger time of the reading.
    pub as_of: StoreTime,
    /// The rosters that have settings or ever had a provider.
    pub rosters: BTreeMap<RosterName, RosterView>,
    /// The rosters with a current mark ([`Ledger::want_heartbeats`](super::Ledger::want_heartbeats)), whether or not
    /// they are in `rosters`.
    pub wanted: BTreeSet<RosterName>,
}

/// The state of one roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RosterView {
    /// Its settings; the defaults with [`Version::NONE`](super::Version::NONE) if none were ever set.
    pub settings: RosterSettings,
    /// Whether a row may not have reached the mirror.
    pub is_dirty: bool,
    /// When its next open engagement expires; `None` if none does.
    pub next_expiry: Option<StoreTime>,
}
