//! All that a process polls a ledger for, of all rosters in one answer.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::RosterSettings;
use crate::id::RosterName;
use crate::time::StoreTime;

/// How all rosters stand, at one moment. A process that keeps mirrors in step polls it, so that an idle roster costs no
/// statement of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// The ledger's time when it was read.
    pub as_of: StoreTime,
    /// The rosters that have settings or ever had a provider.
    pub rosters: BTreeMap<RosterName, RosterView>,
    /// The rosters whose mark stands ([`Ledger::want_heartbeats`](super::Ledger::want_heartbeats)), whether or not they are
    /// among the others.
    pub wanted: BTreeSet<RosterName>,
}

/// How one roster stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RosterView {
    /// Its settings: the defaults, with [`Version::NONE`](super::Version::NONE), when nothing was ever set.
    pub settings: RosterSettings,
    /// Whether any row may not have reached the mirror.
    pub is_dirty: bool,
    /// When the first of its open engagements expires; `None` when none does.
    pub next_expiry: Option<StoreTime>,
}
