//! The mirror of a roster: the ledger's rows beside the members, and lists that tell who can take work.
//!
//! | key | content |
//! |---|---|
//! | `providers` | HASH, provider → row ([`row`]): the truth of the mirror |
//! | `tombstones`, `tombstones:at` | HASH, provider → version and time of its removal; ZSET by that time |
//! | `free` | ZSET by occupancy: active, with room, online under a tenure that no step has ended |
//! | `busy`, `barred`, `inactive` | SETs: the others who are online; deactivated and online; deactivated and not online |
//! | `offlined`, `offline`, `offline:lapsed` | HASH, ended tenure → what the ledger has to follow; ZSETs by when it may |
//! | `meta` | `roster` (what every reply tells, and the snapshot), `settings`, `retime`, `turn:<task>` |
//!
//! Each provider is in one of the four lists or in none, as its row and its tenure say, so counting touches nobody; those
//! whose tenure is over though no step has met them are subtracted, by the lazy index of the members. The steps of all other
//! nouns keep the lists and the pending ones, too, where they end a tenure (`offline.lua`); in a group without the field
//! `roster` they do not even look.

mod reading;
mod row;
mod step;
mod verify;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::RosterSettings;
use tenure_core::roster::{
    BeatProviders, EndTurn, Heartbeats, ListPending, MarkSeeded, OfflineDone, Pending, PutOutcome, PutProviders,
    PutRosterSettings, ReadSettings, Retime, Seat, Seated, Turn, TurnRequest,
};
use tenure_core::store::Call;
use tenure_core::time::micros;

use crate::script::Lateness;
use crate::store::ValkeyStore;

/// How many members one script gives a new ttl at most.
const RETIMES: u32 = 200;

#[async_trait]
impl Serve<PutProviders> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: PutProviders, call: Call) -> Result<Vec<PutOutcome>> {
        if ask.puts.is_empty() {
            return Ok(Vec::new());
        }
        self.announce(group).await?;
        let args = ask.puts.iter().flat_map(step::put_args);
        let invocation = self.punctual(group, call).args(args);
        self.connection
            .call(&self.scripts.put_providers, invocation, |reader, _| {
                step::each(&mut reader.array()?, ask.puts.len(), step::read_put)
            })
            .await
    }
}

#[async_trait]
impl Serve<Seat> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Seat, call: Call) -> Result<Vec<Seated>> {
        if ask.providers.is_empty() {
            return Ok(Vec::new());
        }
        self.announce(group).await?;
        let invocation = self
            .punctual(group, call)
            .number(micros(ask.stale_after))
            .arg(if ask.beat { "1" } else { "0" })
            .args(ask.providers.iter().map(ProviderId::as_str));
        self.connection
            .call(&self.scripts.seat, invocation, |reader, _| {
                step::read_seated(&mut reader.array()?, &ask.providers)
            })
            .await
    }
}

#[async_trait]
impl Serve<BeatProviders> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: BeatProviders, _: Call) -> Result<Heartbeats> {
        let invocation = step::heartbeat_args(self.changing(group, Lateness::Harmless), &ask.heartbeats);
        self.connection
            .call(&self.scripts.heartbeat, invocation, |reader, now| {
                let stamp = step::read_stamp(reader, now)?;
                let replies = step::read_heard(reader, ask.heartbeats.len())?;
                Ok(Heartbeats { replies, stamp })
            })
            .await
    }
}

#[async_trait]
impl Serve<ListPending> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ListPending, call: Call) -> Result<Pending> {
        let invocation = self
            .punctual(group, call)
            .number(u64::from(ask.limit))
            .arg(if ask.force { "1" } else { "0" });
        self.connection
            .call(&self.scripts.pending_offline, invocation, |reader, _| {
                step::read_pending(reader)
            })
            .await
    }
}

#[async_trait]
impl Serve<OfflineDone> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: OfflineDone, call: Call) -> Result<u64> {
        let invocation = self.punctual(group, call).tenures(ask.tenures.iter());
        self.connection
            .call(&self.scripts.offline_done, invocation, |reader, _| reader.number())
            .await
    }
}

#[async_trait]
impl Serve<PutRosterSettings> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: PutRosterSettings, call: Call) -> Result<bool> {
        self.announce(group).await?;
        let invocation = self
            .punctual(group, call)
            .number(ask.settings.version.0)
            .arg(step::show_settings(&ask.settings))
            .arg(step::show_over(ask.over));
        self.connection
            .call(&self.scripts.put_roster_settings, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }
}

#[async_trait]
impl Serve<ReadSettings> for ValkeyStore {
    async fn serve(&self, group: &Group, _: ReadSettings, _: Call) -> Result<Option<RosterSettings>> {
        self.connection
            .call(&self.scripts.stamp, Self::reading(group), |reader, now| {
                step::read_stamp(reader, now)?;
                Ok(reader.maybe_text()?.as_deref().and_then(step::parse_settings))
            })
            .await
    }
}

#[async_trait]
impl Serve<Retime> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Retime, call: Call) -> Result<bool> {
        let invocation = self.punctual(group, call).number(u64::from(ask.limit.min(RETIMES)));
        self.connection
            .call(&self.scripts.retime, invocation, |reader, _| Ok(reader.number()? != 0))
            .await
    }
}

#[async_trait]
impl Serve<TurnRequest> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: TurnRequest, call: Call) -> Result<Turn> {
        let invocation = self
            .punctual(group, call)
            .arg("take")
            .arg(ask.task.as_str())
            .arg(&ask.holder)
            .number(micros(ask.lasts))
            .number(micros(ask.every));
        self.connection
            .call(&self.scripts.turn, invocation, |reader, _| step::read_turn(reader))
            .await
    }
}

#[async_trait]
impl Serve<EndTurn> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: EndTurn, call: Call) -> Result<()> {
        let invocation = self
            .punctual(group, call)
            .arg("end")
            .arg(ask.task.as_str())
            .arg(&ask.holder)
            .arg(if ask.done { "1" } else { "0" });
        self.connection
            .call(&self.scripts.turn, invocation, |_, _| Ok(()))
            .await
    }
}

#[async_trait]
impl Serve<MarkSeeded> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: MarkSeeded, call: Call) -> Result<bool> {
        self.announce(group).await?;
        let invocation = self.punctual(group, call).number(ask.since.micros());
        self.connection
            .call(&self.scripts.mark_seeded, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }
}
