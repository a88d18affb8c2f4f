//! The mirror of a roster: the ledger's rows next to the members, and the indexes of available providers.
//!
//! | key | content |
//! |---|---|
//! | `providers` | HASH, provider → row ([`row`]): the source of truth of the mirror |
//! | `tombstones`, `tombstones:at` | HASH, provider → version and time of its removal; ZSET by that time |
//! | `free` | ZSET by occupancy: active, with room, online under a tenure that no step has ended |
//! | `busy`, `barred`, `inactive` | SETs: all other online providers; deactivated and online; deactivated and offline |
//! | `offlined`, `offline`, `offline:lapsed` | HASH, ended tenure → the end not yet applied to the ledger; ZSETs by due time |
//! | `meta` | `roster` (the state that every reply carries, and the snapshot), `settings`, `retime`, `turn:<task>` |
//!
//! Each provider is in at most one of the four indexes, determined by its row and its tenure, so a count reads no rows.
//! Members that lapsed but that no step has ended yet are subtracted, by the lazy index of the members. Steps of other
//! nouns that end a tenure also maintain these indexes and the pending ends (`offline.lua`). In a group without the
//! field `roster` they skip this.

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
    BeatProviders, EndTurn, EnsureTenures, EnsuredTenure, Heartbeats, ListPending, MarkSeeded, OfflineDone, Pending,
    PutOutcome, PutProviders, PutRosterSettings, ReadSettings, Retime, Turn, TurnRequest,
};
use tenure_core::store::Call;
use tenure_core::time::micros;

use crate::script::Lateness;
use crate::store::ValkeyStore;

/// How many members one script retimes at most.
const RETIMES: u32 = 200;

#[async_trait]
impl Serve<PutProviders> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: PutProviders, call: Call) -> Result<Vec<PutOutcome>> {
        if ask.puts.is_empty() {
            return Ok(Vec::new());
        }
        self.announce(group).await?;
        let args = ask.puts.iter().flat_map(step::put_args);
        let invocation = self.timely_call(group, call).args(args);
        self.connection
            .call(&self.scripts.put_providers, invocation, |reader, _| {
                step::each(&mut reader.array()?, ask.puts.len(), step::read_put)
            })
            .await
    }
}

#[async_trait]
impl Serve<EnsureTenures> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: EnsureTenures, call: Call) -> Result<Vec<EnsuredTenure>> {
        if ask.providers.is_empty() {
            return Ok(Vec::new());
        }
        self.announce(group).await?;
        let invocation = self
            .timely_call(group, call)
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
        let invocation = step::heartbeat_args(self.write_call(group, Lateness::Harmless), &ask.heartbeats);
        self.connection
            .call(&self.scripts.heartbeat, invocation, |reader, now| {
                let stamp = step::read_stamp(reader, now)?;
                let replies = step::read_heard(reader, ask.heartbeats.len())?;
                Ok(Heartbeats { replies, mirror: stamp })
            })
            .await
    }
}

#[async_trait]
impl Serve<ListPending> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ListPending, call: Call) -> Result<Pending> {
        let invocation = self
            .timely_call(group, call)
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
        let invocation = self.timely_call(group, call).tenures(ask.tenures.iter());
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
            .timely_call(group, call)
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
            .call(&self.scripts.stamp, Self::read_call(group), |reader, now| {
                step::read_stamp(reader, now)?;
                Ok(reader.maybe_text()?.as_deref().and_then(step::parse_settings))
            })
            .await
    }
}

#[async_trait]
impl Serve<Retime> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Retime, call: Call) -> Result<bool> {
        let invocation = self.timely_call(group, call).number(u64::from(ask.limit.min(RETIMES)));
        self.connection
            .call(&self.scripts.retime, invocation, |reader, _| Ok(reader.number()? != 0))
            .await
    }
}

#[async_trait]
impl Serve<TurnRequest> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: TurnRequest, call: Call) -> Result<Turn> {
        let invocation = self
            .timely_call(group, call)
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
            .timely_call(group, call)
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
        let invocation = self.timely_call(group, call).number(ask.since.micros());
        self.connection
            .call(&self.scripts.mark_seeded, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }
}
