//! The calls of a mirror as values.

use std::time::Duration;

#[cfg(doc)]
use super::RosterMirror;
use super::put::check_versions;
use super::{
    FoundProviders, Heartbeat, Heartbeats, Overwrite, Put, Task, check_holder, check_items, check_puts,
    check_stale_after,
};
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
    /// The entries; each has its own outcome.
    pub puts: Vec<Put>,
}

impl Limits for PutProviders {
    fn check(&self, _: Duration) -> Result<()> {
        check_puts(&self.puts)
    }
    fn items(&self) -> usize {
        self.puts.len()
    }
    fn empty_reply(&self) -> Option<Self::Reply> {
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

/// [`RosterMirror::ensure_tenures`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnsureTenures {
    /// The providers; each has its own result.
    pub providers: Vec<ProviderId>,
    /// The ttl if the group has no settings.
    pub stale_after: Duration,
    /// Whether it counts as a heartbeat.
    pub beat: bool,
}

impl Limits for EnsureTenures {
    fn check(&self, _: Duration) -> Result<()> {
        check_items(self.providers.len())?;
        check_stale_after(self.stale_after)
    }
    fn items(&self) -> usize {
        self.providers.len()
    }
    fn empty_reply(&self) -> Option<Self::Reply> {
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
    /// The heartbeats; each has its own reply.
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
    /// The page.
    pub page: PageRequest,
}

/// [`RosterMirror::availability`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountAvailable {
    /// The maximum age of the snapshot.
    pub snapshot: Duration,
}

/// [`RosterMirror::look`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// The providers.
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
        FoundProviders {
            providers: [all.providers, next.providers].concat(),
            ..next
        }
    }
}

/// [`RosterMirror::rows`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRows {
    /// The page.
    pub page: PageRequest,
}

/// [`RosterMirror::roster_stats`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountRoster;

/// [`RosterMirror::mirror_status`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadMirrorStatus;

/// [`RosterMirror::pending_offline`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPending {
    /// The maximum number of tenures.
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
    /// The tenures that the ledger has applied.
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
    /// The settings of the ledger.
    pub settings: RosterSettings,
    /// What they may overwrite.
    pub over: Overwrite,
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
    /// The maximum number of members.
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
    /// The task.
    pub task: Task,
    /// The holder of the turn.
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
    /// The time of the last resume, from before the first row was written.
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
