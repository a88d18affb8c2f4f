//! The calls of a mirror as values.

use std::time::Duration;

#[cfg(doc)]
use super::RosterMirror;
use super::{Heartbeat, Over, Put, Task};
use crate::id::{ProviderId, TenureId};
use crate::ledger::RosterSettings;
use crate::store::PageRequest;
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

/// [`RosterMirror::put_providers`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutProviders {
    /// Each is answered by itself.
    pub puts: Vec<Put>,
}

/// [`RosterMirror::seat`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Each is answered by itself.
    pub providers: Vec<ProviderId>,
    /// The ttl where the group has no settings.
    pub stale_after: Duration,
    /// Whether it counts as a heartbeat.
    pub beat: bool,
}

/// [`RosterMirror::heartbeat`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatProviders {
    /// Each is answered by itself.
    pub heartbeats: Vec<Heartbeat>,
}

/// [`RosterMirror::available`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListAvailable {
    /// Which page.
    pub page: PageRequest,
}

/// [`RosterMirror::availability`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountAvailable {
    /// How old the count may be.
    pub snapshot: Duration,
}

/// [`RosterMirror::look`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// Each is answered by itself.
    pub providers: Vec<ProviderId>,
}

/// [`RosterMirror::rows`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRows {
    /// Which page.
    pub page: PageRequest,
}

/// [`RosterMirror::roster_stats`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountRoster;

/// [`RosterMirror::stamp`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStamp;

/// [`RosterMirror::pending_offline`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPending {
    /// At most this many.
    pub limit: u32,
    /// Lift the brake first.
    pub force: bool,
}

/// [`RosterMirror::offline_done`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineDone {
    /// Which the ledger has followed.
    pub tenures: Vec<TenureId>,
}

/// [`RosterMirror::put_roster_settings`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutRosterSettings {
    /// What the ledger says.
    pub settings: RosterSettings,
    /// What they are put over.
    pub over: Over,
}

/// [`RosterMirror::roster_settings`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSettings;

/// [`RosterMirror::retime`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retime {
    /// At most this many members.
    pub limit: u32,
}

/// [`RosterMirror::end_turn`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndTurn {
    /// At what.
    pub task: Task,
    /// Whose.
    pub holder: String,
    /// Whether the task was done.
    pub done: bool,
}

/// [`RosterMirror::mark_seeded`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSeeded {
    /// When the store last resumed, as it was before anything was brought.
    pub since: StoreTime,
}

/// [`RosterMirror::verify_roster`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyRoster(pub ReconcileRequest);
