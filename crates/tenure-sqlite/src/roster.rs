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

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::roster::{
    BeatProviders, EndTurn, Heartbeat, HeartbeatReply, Heartbeats, ListPending, MarkSeeded, OfflineDone, Pending,
    PutOutcome, PutProviders, PutRosterSettings, Retime, Seat, Seated, Turn, TurnRequest, Verified, VerifyRoster,
};
use tenure_core::store::Call;
use tenure_core::sweep::BATCH;
use tenure_core::{Group, Result};

pub(crate) use marks::Marks;
pub(crate) use row::read_heads;
pub(crate) use table::{Head, Roster};

use crate::store::SqliteStore;

#[async_trait]
impl Serve<PutProviders> for SqliteStore {
    async fn serve(&self, group: &Group, ask: PutProviders, call: Call) -> Result<Vec<PutOutcome>> {
        self.step(group, call, move |step| step.put_providers(&ask.puts)).await
    }
}

#[async_trait]
impl Serve<Seat> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Seat, call: Call) -> Result<Vec<Seated>> {
        self.step(group, call, move |step| {
            step.seat(&ask.providers, ask.stale_after, ask.beat)
        })
        .await
    }
}

#[async_trait]
impl Serve<BeatProviders> for SqliteStore {
    /// Answers from memory, and what memory cannot answer in steps.
    async fn serve(&self, group: &Group, ask: BeatProviders, _: Call) -> Result<Heartbeats> {
        let heartbeats = ask.heartbeats;
        let (mut stamp, mut replies) = match self.live(group)? {
            Some(live) => {
                let (stamp, replies) = live.heartbeat(self.clock(), &heartbeats);
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
}

#[async_trait]
impl Serve<ListPending> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ListPending, call: Call) -> Result<Pending> {
        self.step(group, call, move |step| step.pending_offline(ask.limit, ask.force))
            .await
    }
}

#[async_trait]
impl Serve<OfflineDone> for SqliteStore {
    async fn serve(&self, group: &Group, ask: OfflineDone, call: Call) -> Result<u64> {
        self.step(group, call, move |step| step.offline_done(&ask.tenures))
            .await
    }
}

#[async_trait]
impl Serve<PutRosterSettings> for SqliteStore {
    async fn serve(&self, group: &Group, ask: PutRosterSettings, call: Call) -> Result<bool> {
        self.step(group, call, move |step| {
            step.put_roster_settings(&ask.settings, ask.over)
        })
        .await
    }
}

#[async_trait]
impl Serve<Retime> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Retime, call: Call) -> Result<bool> {
        self.step(group, call, move |step| step.retime(ask.limit)).await
    }
}

#[async_trait]
impl Serve<TurnRequest> for SqliteStore {
    async fn serve(&self, group: &Group, ask: TurnRequest, call: Call) -> Result<Turn> {
        self.step(group, call, move |step| step.take_turn(&ask)).await
    }
}

#[async_trait]
impl Serve<EndTurn> for SqliteStore {
    async fn serve(&self, group: &Group, ask: EndTurn, call: Call) -> Result<()> {
        self.step(group, call, move |step| step.end_turn(ask.task, &ask.holder, ask.done))
            .await
    }
}

#[async_trait]
impl Serve<MarkSeeded> for SqliteStore {
    async fn serve(&self, group: &Group, ask: MarkSeeded, call: Call) -> Result<bool> {
        self.step(group, call, move |step| step.mark_seeded(ask.since)).await
    }
}

#[async_trait]
impl Serve<VerifyRoster> for SqliteStore {
    async fn serve(&self, group: &Group, VerifyRoster(ask): VerifyRoster, call: Call) -> Result<Verified> {
        let place = verify::Place::parse(ask.after.as_deref())?;
        self.step(group, call, move |step| step.verify_roster(place, ask.limit))
            .await
    }
}

#[cfg(test)]
mod tests;
