//! The model's mirror behind the store's lock and clock.

use std::time::Duration;

use async_trait::async_trait;

use super::group::GroupModel;
use super::store::MemoryStore;
use crate::error::Result;
use crate::id::{Group, ProviderId, TenureId};
use crate::ledger::RosterSettings;
use crate::roster::{
    Availability, Heartbeat, Heartbeats, Looked, Over, Pending, Put, PutOutcome, Ranked, RosterMirror, Rows, Seated,
    Stamp, Stats, Task, Turn, TurnRequest, Verified, check_items, check_stale_after,
};
use crate::store::{Call, PageRequest, StoreOptions, check_limit};
use crate::sweep::{BATCH, ReconcileRequest};
use crate::time::StoreTime;

#[async_trait]
impl RosterMirror for MemoryStore {
    async fn put_providers(&self, group: &Group, puts: &[Put], call: Call) -> Result<Vec<PutOutcome>> {
        check_items(puts.len())?;
        let mut all = Vec::with_capacity(puts.len());
        for part in puts.chunks(BATCH as usize) {
            all.extend(self.step(group, |model, now| model.put_providers(part, call, now))?);
        }
        Ok(all)
    }

    async fn seat(
        &self,
        group: &Group,
        providers: &[ProviderId],
        stale_after: Duration,
        beat: bool,
        call: Call,
    ) -> Result<Vec<Seated>> {
        check_items(providers.len())?;
        check_stale_after(stale_after)?;
        let mut all = Vec::with_capacity(providers.len());
        for part in providers.chunks(BATCH as usize) {
            all.extend(self.step(group, |model, now| model.seat(part, stale_after, beat, call, now))?);
        }
        Ok(all)
    }

    async fn heartbeat(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        check_items(heartbeats.len())?;
        let mut parts = heartbeats.chunks(BATCH as usize);
        let first = parts.next().unwrap_or_default();
        let mut all = self.step(group, |model, now| model.heartbeat(first, now))?;
        for part in parts {
            let heard = self.step(group, |model, now| model.heartbeat(part, now))?;
            all.replies.extend(heard.replies);
            all.stamp = heard.stamp;
        }
        Ok(all)
    }

    async fn available(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.available(page, now))?
    }

    async fn availability(&self, group: &Group, snapshot: Duration) -> Result<Availability> {
        // A group that is not there is not made by asking about it.
        if !self.knows(group)? {
            let asked = |_: &GroupModel, now| GroupModel::new(StoreOptions::default(), now).availability(snapshot, now);
            return self.read(group, asked);
        }
        self.step(group, |model, now| Ok(model.availability(snapshot, now)))
    }

    async fn look(&self, group: &Group, providers: &[ProviderId]) -> Result<Looked> {
        check_items(providers.len())?;
        self.read(group, |model, now| model.look(providers, now))
    }

    async fn rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.rows_page(page, now))?
    }

    async fn roster_stats(&self, group: &Group) -> Result<Stats> {
        self.read(group, |model, now| model.roster_stats(now))
    }

    async fn stamp(&self, group: &Group) -> Result<Stamp> {
        self.read(group, |model, now| model.stamp(now))
    }

    async fn pending_offline(&self, group: &Group, limit: u32, force: bool, call: Call) -> Result<Pending> {
        check_limit(limit)?;
        self.step(group, |model, now| model.pending_offline(limit, force, call, now))
    }

    async fn offline_done(&self, group: &Group, tenures: &[TenureId], call: Call) -> Result<u64> {
        check_items(tenures.len())?;
        self.step(group, |model, now| model.offline_done(tenures, call, now))
    }

    async fn put_roster_settings(
        &self,
        group: &Group,
        settings: &RosterSettings,
        over: Over,
        call: Call,
    ) -> Result<bool> {
        self.step(group, |model, now| model.put_roster_settings(settings, over, call, now))
    }

    async fn roster_settings(&self, group: &Group) -> Result<Option<RosterSettings>> {
        self.read(group, |model, _| model.roster.settings)
    }

    async fn retime(&self, group: &Group, limit: u32, call: Call) -> Result<bool> {
        check_limit(limit)?;
        self.step(group, |model, now| model.retime(limit, call, now))
    }

    async fn take_turn(&self, group: &Group, request: &TurnRequest, call: Call) -> Result<Turn> {
        self.step(group, |model, now| model.take_turn(request, call, now))
    }

    async fn end_turn(&self, group: &Group, task: Task, holder: &str, done: bool, call: Call) -> Result<()> {
        self.step(group, |model, now| model.end_turn(task, holder, done, call, now))
    }

    async fn mark_seeded(&self, group: &Group, since: StoreTime, call: Call) -> Result<bool> {
        self.step(group, |model, now| model.mark_seeded(since, call, now))
    }

    async fn verify_roster(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        check_limit(request.limit)?;
        self.step(group, |model, now| model.verify_roster(request, call, now))
    }
}
