//! Rosters: the hot copy of the ledger's rows, and who of them is alive.
//!
//! What the ledger said is in rows, and so are what was removed, whom the ledger has to follow, settings and marks: a
//! restart needs nothing told anew. What a heartbeat has to know of a row lies in memory beside the live table, and so
//! does the order of those who can take work: `table`. `marks` is what is known of a roster as a whole. The steps are in
//! `put`, `seat`, `heartbeat`, `offline`, `settings`, `turn`; `listing` holds the reads, and `verify` looks for what only
//! a foreign hand can have done to the file.

mod heartbeat;
mod listing;
mod marks;
mod offline;
mod put;
mod row;
mod seat;
mod settings;
mod table;
mod turn;
mod verify;

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::ledger::RosterSettings;
use tenure_core::parts::Parts;
use tenure_core::roster::{
    Availability, Heartbeat, HeartbeatReply, Heartbeats, Looked, Over, Pending, Put, PutOutcome, Ranked, RosterMirror,
    Rows, Seated, Stamp, Stats, Task, Turn, TurnRequest, Verified, check_items, check_stale_after,
};
use tenure_core::store::{Call, PageRequest, check_limit};
use tenure_core::sweep::{BATCH, ReconcileRequest};
use tenure_core::{Group, ProviderId, Result, StoreTime, TenureId};

pub(crate) use marks::Marks;
pub(crate) use row::read_heads;
pub(crate) use table::{Head, Roster};

use crate::store::SqliteStore;

#[async_trait]
impl RosterMirror for SqliteStore {
    async fn put_providers(&self, group: &Group, puts: &[Put], call: Call) -> Result<Vec<PutOutcome>> {
        check_items(puts.len())?;
        let (mut all, mut done) = (Vec::with_capacity(puts.len()), Parts::default());
        for part in puts.chunks(BATCH as usize) {
            let part = part.to_vec();
            let step = self.step(group, call, move |step| step.put_providers(&part));
            all.extend(done.take(step.await)?);
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
        let (mut all, mut done) = (Vec::with_capacity(providers.len()), Parts::default());
        for part in providers.chunks(BATCH as usize) {
            let part = part.to_vec();
            let step = self.step(group, call, move |step| step.seat(&part, stale_after, beat));
            all.extend(done.take(step.await)?);
        }
        Ok(all)
    }

    async fn heartbeat(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        check_items(heartbeats.len())?;
        let (mut stamp, mut replies) = match self.live(group)? {
            Some(live) => {
                let (stamp, replies) = live.heartbeat(self.clock(), heartbeats);
                (Some(stamp), replies)
            }
            None => (None, vec![None; heartbeats.len()]),
        };
        self.keep_high_water();
        let left: Vec<usize> = (0..heartbeats.len()).filter(|n| replies[*n].is_none()).collect();
        // Also without a heartbeat: a step looks for a gap.
        let parts = left
            .chunks(BATCH as usize)
            .chain(heartbeats.is_empty().then_some(&[][..]));
        for part in parts {
            let slow: Vec<Heartbeat> = part.iter().map(|n| heartbeats[*n].clone()).collect();
            let step = self.step(group, Call::default(), move |step| step.heartbeat(&slow));
            let heard = step.await?;
            stamp = Some(heard.stamp);
            for (n, reply) in part.iter().zip(heard.replies) {
                replies[*n] = Some(reply);
            }
        }
        Ok(Heartbeats {
            replies: replies
                .into_iter()
                .map(|reply| reply.unwrap_or(HeartbeatReply::Unknown))
                .collect(),
            stamp: stamp.unwrap_or_else(|| self.stamp_of_none()),
        })
    }

    async fn available(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        check_limit(page.limit)?;
        self.rank(group, page)
    }

    async fn availability(&self, group: &Group, snapshot: Duration) -> Result<Availability> {
        Ok(match self.live(group)? {
            Some(live) => self.count_available(&live, snapshot),
            None => {
                let stamp = self.stamp_of_none();
                Availability {
                    count: 0,
                    as_of: stamp.as_of,
                    complete: true,
                    stamp,
                }
            }
        })
    }

    async fn look(&self, group: &Group, providers: &[ProviderId]) -> Result<Looked> {
        check_items(providers.len())?;
        self.look_up(group, providers).await
    }

    async fn rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        check_limit(page.limit)?;
        self.list_rows(group, page).await
    }

    async fn roster_stats(&self, group: &Group) -> Result<Stats> {
        self.count_all(group)
    }

    async fn stamp(&self, group: &Group) -> Result<Stamp> {
        Ok(match self.live(group)? {
            Some(live) => live.look(self.clock(), |table, now| table.stamp(now)),
            None => self.stamp_of_none(),
        })
    }

    async fn pending_offline(&self, group: &Group, limit: u32, force: bool, call: Call) -> Result<Pending> {
        let limit = check_limit(limit)?;
        self.step(group, call, move |step| step.pending_offline(limit, force))
            .await
    }

    async fn offline_done(&self, group: &Group, tenures: &[TenureId], call: Call) -> Result<u64> {
        check_items(tenures.len())?;
        let tenures = tenures.to_vec();
        self.step(group, call, move |step| step.offline_done(&tenures)).await
    }

    async fn put_roster_settings(
        &self,
        group: &Group,
        settings: &RosterSettings,
        over: Over,
        call: Call,
    ) -> Result<bool> {
        let settings = *settings;
        self.step(group, call, move |step| step.put_roster_settings(&settings, over))
            .await
    }

    async fn roster_settings(&self, group: &Group) -> Result<Option<RosterSettings>> {
        let live = self.live(group)?;
        Ok(live.and_then(|live| live.lock().meta.roster.settings))
    }

    async fn retime(&self, group: &Group, limit: u32, call: Call) -> Result<bool> {
        let limit = check_limit(limit)?;
        self.step(group, call, move |step| step.retime(limit)).await
    }

    async fn take_turn(&self, group: &Group, request: &TurnRequest, call: Call) -> Result<Turn> {
        let request = request.clone();
        self.step(group, call, move |step| step.take_turn(&request)).await
    }

    async fn end_turn(&self, group: &Group, task: Task, holder: &str, done: bool, call: Call) -> Result<()> {
        let holder = holder.to_owned();
        self.step(group, call, move |step| step.end_turn(task, &holder, done))
            .await
    }

    async fn mark_seeded(&self, group: &Group, since: StoreTime, call: Call) -> Result<bool> {
        self.step(group, call, move |step| step.mark_seeded(since)).await
    }

    async fn verify_roster(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        let limit = check_limit(request.limit)?;
        let place = verify::Place::parse(request.after.as_deref())?;
        self.step(group, call, move |step| step.verify_roster(place, limit))
            .await
    }
}

#[cfg(test)]
mod tests;
