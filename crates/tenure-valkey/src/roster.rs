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

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Group, ProviderId, TenureId};
use tenure_core::ledger::RosterSettings;
use tenure_core::parts::Parts;
use tenure_core::roster::{
    Availability, Heartbeat, Heartbeats, Looked, Over, Pending, Put, PutOutcome, Ranked, RosterMirror, Rows, Seated,
    Stamp, Stats, Task, Turn, TurnRequest, Verified, check_items, check_stale_after,
};
use tenure_core::store::{Call, PageRequest, check_limit};
use tenure_core::sweep::ReconcileRequest;
use tenure_core::time::{StoreTime, micros};

use crate::script::Lateness;
use crate::store::ValkeyStore;

/// How many rows or seats one script takes at most: each is written in half a dozen keys.
const WRITES: usize = 100;
/// How many heartbeats or ended tenures one script takes at most: less than a millisecond of the server's time.
const HEARTBEATS: usize = 200;
/// How many members one script gives a new ttl at most.
const RETIMES: u32 = 200;

#[async_trait]
impl RosterMirror for ValkeyStore {
    async fn put_providers(&self, group: &Group, puts: &[Put], call: Call) -> Result<Vec<PutOutcome>> {
        check_items(puts.len())?;
        if puts.is_empty() {
            return Ok(Vec::new());
        }
        // All of them are looked at before the first is sent.
        let args = puts.iter().map(step::put_args).collect::<Result<Vec<_>>>()?;
        self.announce(group).await?;
        let (mut outcomes, mut parts) = (Vec::with_capacity(puts.len()), Parts::default());
        for part in args.chunks(WRITES) {
            let invocation = self.punctual(group, call).args(part.iter().flatten());
            let done = self
                .connection
                .call(&self.scripts.put_providers, invocation, |reader, _| {
                    step::each(&mut reader.array()?, part.len(), step::read_put)
                })
                .await;
            outcomes.extend(parts.take(done)?);
        }
        Ok(outcomes)
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
        if providers.is_empty() {
            return Ok(Vec::new());
        }
        self.announce(group).await?;
        let (mut seated, mut parts) = (Vec::with_capacity(providers.len()), Parts::default());
        for part in providers.chunks(WRITES) {
            let invocation = self
                .punctual(group, call)
                .number(micros(stale_after))
                .arg(if beat { "1" } else { "0" })
                .args(part.iter().map(ProviderId::as_str));
            let done = self
                .connection
                .call(&self.scripts.seat, invocation, |reader, _| {
                    step::read_seated(&mut reader.array()?, part)
                })
                .await;
            seated.extend(parts.take(done)?);
        }
        Ok(seated)
    }

    async fn heartbeat(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        check_items(heartbeats.len())?;
        // An empty batch is still a step: it ticks.
        let (mut parts, mut done) = (heartbeats.chunks(HEARTBEATS), Parts::default());
        let first = parts.next().unwrap_or_default();
        let mut heard = done.take(self.heartbeat_part(group, first).await)?;
        for part in parts {
            let more = done.take(self.heartbeat_part(group, part).await)?;
            heard.replies.extend(more.replies);
            heard.stamp = more.stamp;
        }
        Ok(heard)
    }

    async fn available(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        check_limit(page.limit)?;
        self.available_page(group, page).await
    }

    async fn availability(&self, group: &Group, snapshot: Duration) -> Result<Availability> {
        let invocation = Self::reading(group).number(micros(snapshot));
        self.connection
            .call(&self.scripts.availability, invocation, |reader, now| {
                let stamp = step::read_stamp(reader, now)?;
                Ok(Availability {
                    count: reader.number()?,
                    as_of: reader.time()?,
                    complete: reader.number()? == 0,
                    stamp,
                })
            })
            .await
    }

    async fn look(&self, group: &Group, providers: &[ProviderId]) -> Result<Looked> {
        check_items(providers.len())?;
        self.look_at(group, providers).await
    }

    async fn rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        check_limit(page.limit)?;
        self.page_of_rows(group, page).await
    }

    async fn roster_stats(&self, group: &Group) -> Result<Stats> {
        self.connection
            .call(&self.scripts.roster_stats, Self::reading(group), reading::read_stats)
            .await
    }

    async fn stamp(&self, group: &Group) -> Result<Stamp> {
        self.connection
            .call(&self.scripts.stamp, Self::reading(group), step::read_stamp)
            .await
    }

    async fn pending_offline(&self, group: &Group, limit: u32, force: bool, call: Call) -> Result<Pending> {
        check_limit(limit)?;
        let invocation = self
            .punctual(group, call)
            .number(u64::from(limit))
            .arg(if force { "1" } else { "0" });
        self.connection
            .call(&self.scripts.pending_offline, invocation, |reader, _| {
                step::read_pending(reader)
            })
            .await
    }

    async fn offline_done(&self, group: &Group, tenures: &[TenureId], call: Call) -> Result<u64> {
        check_items(tenures.len())?;
        let (mut parts, mut done) = (tenures.chunks(HEARTBEATS), Parts::default());
        let first = parts.next().unwrap_or_default();
        let mut count = done.take(self.done_part(group, first, call).await)?;
        for part in parts {
            count += done.take(self.done_part(group, part, call).await)?;
        }
        Ok(count)
    }

    async fn put_roster_settings(
        &self,
        group: &Group,
        settings: &RosterSettings,
        over: Over,
        call: Call,
    ) -> Result<bool> {
        let version = row::check_version(settings.version)?;
        self.announce(group).await?;
        let invocation = self
            .punctual(group, call)
            .number(version.0)
            .arg(step::show_settings(settings))
            .arg(step::show_over(over)?);
        self.connection
            .call(&self.scripts.put_roster_settings, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }

    async fn roster_settings(&self, group: &Group) -> Result<Option<RosterSettings>> {
        self.connection
            .call(&self.scripts.stamp, Self::reading(group), |reader, now| {
                step::read_stamp(reader, now)?;
                Ok(reader.maybe_text()?.as_deref().and_then(step::parse_settings))
            })
            .await
    }

    async fn retime(&self, group: &Group, limit: u32, call: Call) -> Result<bool> {
        check_limit(limit)?;
        let invocation = self.punctual(group, call).number(u64::from(limit.min(RETIMES)));
        self.connection
            .call(&self.scripts.retime, invocation, |reader, _| Ok(reader.number()? != 0))
            .await
    }

    async fn take_turn(&self, group: &Group, request: &TurnRequest, call: Call) -> Result<Turn> {
        check_holder(&request.holder)?;
        let invocation = self
            .punctual(group, call)
            .arg("take")
            .arg(request.task.as_str())
            .arg(&request.holder)
            .number(micros(request.lasts))
            .number(micros(request.every));
        self.connection
            .call(&self.scripts.turn, invocation, |reader, _| step::read_turn(reader))
            .await
    }

    async fn end_turn(&self, group: &Group, task: Task, holder: &str, done: bool, call: Call) -> Result<()> {
        check_holder(holder)?;
        let invocation = self
            .punctual(group, call)
            .arg("end")
            .arg(task.as_str())
            .arg(holder)
            .arg(if done { "1" } else { "0" });
        self.connection
            .call(&self.scripts.turn, invocation, |_, _| Ok(()))
            .await
    }

    async fn mark_seeded(&self, group: &Group, since: StoreTime, call: Call) -> Result<bool> {
        self.announce(group).await?;
        let invocation = self.punctual(group, call).number(since.micros());
        self.connection
            .call(&self.scripts.mark_seeded, invocation, |reader, _| {
                Ok(reader.number()? != 0)
            })
            .await
    }

    async fn verify_roster(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        check_limit(request.limit)?;
        self.verify_part(group, request, call).await
    }
}

impl ValkeyStore {
    async fn heartbeat_part(&self, group: &Group, part: &[Heartbeat]) -> Result<Heartbeats> {
        let invocation = step::heartbeat_args(self.changing(group, Lateness::Harmless), part);
        self.connection
            .call(&self.scripts.heartbeat, invocation, |reader, now| {
                let stamp = step::read_stamp(reader, now)?;
                let replies = step::read_heard(reader, part.len())?;
                Ok(Heartbeats { replies, stamp })
            })
            .await
    }

    async fn done_part(&self, group: &Group, part: &[TenureId], call: Call) -> Result<u64> {
        let invocation = self.punctual(group, call).tenures(part.iter());
        self.connection
            .call(&self.scripts.offline_done, invocation, |reader, _| reader.number())
            .await
    }
}

/// Refuses a name that the store could not keep beside what else it keeps of a turn.
fn check_holder(holder: &str) -> Result<()> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=64).contains(&holder.len()) && holder.bytes().all(good) {
        return Ok(());
    }
    let shown: String = holder.chars().take(64).collect();
    Err(Error::invalid(format!(
        "{shown:?} is no name of a holder of a turn; use 1 to 64 letters, digits and -"
    )))
}
