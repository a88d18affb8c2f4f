//! The calls of a mirror as values.

use std::time::Duration;

#[cfg(doc)]
use super::RosterMirror;
use super::put::check_versions;
use super::{Heartbeat, Heartbeats, Looked, Over, Put, Task, check_holder, check_items, check_puts, check_stale_after};
use crate::call::Limits;
use crate::error::Result;
use crate::id::{ProviderId, TenureId};
use crate::ledger::RosterSettings;
use crate::store::{PageRequest, check_limit};
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

/// [`RosterMirror::put_providers`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutProviders {
    /// Each is answered by itself.
    pub puts: Vec<Put>,
}

impl Limits for PutProviders {
    fn check(&self, _: Duration) -> Result<()> {
        check_puts(&self.puts)
    }
    fn items(&self) -> usize {
        self.puts.len()
    }
    fn answer_to_nothing(&self) -> Option<Self::Reply> {
        self.puts.is_empty().then(Vec::new)
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let puts = self.puts.split_off(at);
        Some(Self { puts })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        [all, next].concat()
    }
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

impl Limits for Seat {
    fn check(&self, _: Duration) -> Result<()> {
        check_items(self.providers.len())?;
        check_stale_after(self.stale_after)
    }
    fn items(&self) -> usize {
        self.providers.len()
    }
    fn answer_to_nothing(&self) -> Option<Self::Reply> {
        self.providers.is_empty().then(Vec::new)
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let providers = self.providers.split_off(at);
        Some(Self {
            providers,
            ..self.clone()
        })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        [all, next].concat()
    }
}

/// [`RosterMirror::heartbeat`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatProviders {
    /// Each is answered by itself.
    pub heartbeats: Vec<Heartbeat>,
}

impl Limits for BeatProviders {
    fn check(&self, _: Duration) -> Result<()> {
        check_items(self.heartbeats.len())
    }
    fn items(&self) -> usize {
        self.heartbeats.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let heartbeats = self.heartbeats.split_off(at);
        Some(Self { heartbeats })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        Heartbeats {
            replies: [all.replies, next.replies].concat(),
            ..next
        }
    }
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

impl Limits for LookUp {
    fn check(&self, _: Duration) -> Result<()> {
        check_items(self.providers.len())
    }
    fn items(&self) -> usize {
        self.providers.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let providers = self.providers.split_off(at);
        Some(Self { providers })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        Looked {
            seen: [all.seen, next.seen].concat(),
            ..next
        }
    }
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

impl Limits for ListPending {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
}

/// [`RosterMirror::offline_done`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineDone {
    /// Which the ledger has followed.
    pub tenures: Vec<TenureId>,
}

impl Limits for OfflineDone {
    fn check(&self, _: Duration) -> Result<()> {
        check_items(self.tenures.len())
    }
    fn items(&self) -> usize {
        self.tenures.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let tenures = self.tenures.split_off(at);
        Some(Self { tenures })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        all + next
    }
}

/// [`RosterMirror::put_roster_settings`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutRosterSettings {
    /// What the ledger says.
    pub settings: RosterSettings,
    /// What they are put over.
    pub over: Over,
}

impl Limits for PutRosterSettings {
    fn check(&self, _: Duration) -> Result<()> {
        check_versions(self.settings.version, self.over)
    }
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

impl Limits for Retime {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
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

impl Limits for EndTurn {
    fn check(&self, _: Duration) -> Result<()> {
        check_holder(&self.holder)
    }
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

impl Limits for VerifyRoster {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.0.limit).map(drop)
    }
}
