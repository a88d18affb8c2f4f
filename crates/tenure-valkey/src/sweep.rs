//! The janitor's steps.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tenure_core::brake::Brake;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::event::EventId;
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::EndReason;
use tenure_core::settling::{GapCause, gap};
use tenure_core::store::{Call, StoreOptions};
use tenure_core::sweep::{
    BATCH, Doomed, EndLapsed, EndedBatch, Eviction, ForgetGroup, GroupStatus, LOOK_AHEAD, ListDoomed, Release,
    ReleasedBatch, Settle, SettleReport, Settling, Spare, Status, Tick, Unsettled,
};
use tenure_core::time::{StoreTime, micros};

use crate::membership::read_reason;
use crate::reply::{Malformed, Read, Reader, parse};
use crate::script::Lateness;
use crate::store::ValkeyStore;
use crate::view::{Liveness, MemberRow, PackedTenure, foreign, read_holdings, shortest};

/// How many members one script ends at most: about a millisecond of the server's time.
const ENDS: u32 = 100;
/// How many holdings one script releases at most: also about a millisecond.
const RELEASES: u32 = 200;
/// How long the last number of a forgotten group is kept: 30 days, in ms. After that the clock is ahead of it anyway.
const LAST_NUMBER_KEPT_MS: u64 = 30 * 86_400_000;

#[async_trait]
impl Serve<Tick> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Tick, _: Call) -> Result<GroupStatus> {
        let invocation = self
            .maintenance_call(group, Lateness::Refused(Call::default()))
            .arg(ask.node.as_ref().map_or("", |node| node.as_str()));
        let status = self
            .connection
            .call(&self.scripts.tick, invocation, |reader, now| {
                read_status(reader, now, &self.options)
            })
            .await?;
        if status.is_occupied() {
            self.act_on(group);
        }
        Ok(status)
    }
}

#[async_trait]
impl Serve<EndLapsed> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: EndLapsed, call: Call) -> Result<EndedBatch> {
        self.end_some(group, ask.limit, false, call).await
    }
}

#[async_trait]
impl Serve<Spare> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Spare, call: Call) -> Result<EndedBatch> {
        self.end_some(group, ask.limit, true, call).await
    }
}

#[async_trait]
impl Serve<Release> for ValkeyStore {
    async fn serve(&self, group: &Group, Release(request): Release, call: Call) -> Result<ReleasedBatch> {
        let flag = |set: bool| if set { "1" } else { "0" };
        let invocation = self
            .timely_call(group, call)
            .number(u64::from(request.limit.min(RELEASES)))
            .arg(&request.pass)
            .arg(flag(request.force))
            .arg(flag(self.options.event_keys))
            .number(micros(self.options.sessions.grace));
        self.connection
            .call(&self.scripts.release, invocation, |reader, _| read_released(reader))
            .await
    }
}

#[async_trait]
impl Serve<ListDoomed> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ListDoomed, _: Call) -> Result<Vec<Doomed>> {
        let limit = ask.limit as usize;
        let mut doomed = self.doomed_members(group).await?;
        doomed.sort_by(|a, b| a.tenure.member().cmp(b.tenure.member()));
        doomed.truncate(limit);
        for list in ["releasing", "releasing:lapsed"] {
            let left = limit - doomed.len();
            doomed.extend(self.unreleased(group, list, left).await?);
        }
        Ok(doomed)
    }
}

#[async_trait]
impl Serve<ForgetGroup> for ValkeyStore {
    async fn serve(&self, group: &Group, _: ForgetGroup, call: Call) -> Result<bool> {
        // The list first: if this process dies in between, the next act on the group adds it again.
        self.take_off(group).await?;
        let invocation = self
            .maintenance_call(group, Lateness::Refused(call))
            .number(micros(self.options.forget_after))
            .number(LAST_NUMBER_KEPT_MS);
        let answer = self
            .connection
            .call(&self.scripts.forget_group, invocation, |reader, _| reader.text())
            .await;
        let is_gone = matches!(answer.as_deref(), Ok("g" | "a"));
        if !is_gone {
            self.act_on(group);
        }
        answer.map(|_| is_gone)
    }
}

#[async_trait]
impl Serve<Status> for ValkeyStore {
    async fn serve(&self, group: &Group, _: Status, _: Call) -> Result<GroupStatus> {
        self.connection
            .call(&self.scripts.status, Self::read_call(group), |reader, now| {
                read_status(reader, now, &self.options)
            })
            .await
    }
}

#[async_trait]
impl Serve<Settle> for ValkeyStore {
    async fn serve(&self, group: &Option<Group>, Settle { cause }: Settle, call: Call) -> Result<SettleReport> {
        let groups = match group {
            Some(group) => vec![group.clone()],
            None => {
                // New groups first, so that none is created in between. In a cluster each group has its own marker.
                if GapCause::New.is_ended_by(cause) {
                    self.mark_settled().await?;
                }
                self.list_groups().await?
            }
        };
        let mut report = SettleReport::default();
        for group in groups {
            let settling = self.settle_one(&group, cause, call).await?;
            report.add(group, settling);
        }
        Ok(report)
    }
}

impl ValkeyStore {
    async fn settle_one(&self, group: &Group, cause: Option<GapCause>, call: Call) -> Result<Settling> {
        let invocation = self.timely_call(group, call).arg(cause.map_or("", GapCause::as_str));
        self.connection
            .call(&self.scripts.settle, invocation, |reader, _| {
                let (answer, cause) = (reader.text()?, reader.text()?);
                match (answer.as_str(), GapCause::parse(&cause)) {
                    ("e", _) => Ok(Settling::Ended),
                    ("s", _) => Ok(Settling::Settled),
                    ("l", Some(cause)) => Ok(Settling::Left(cause)),
                    _ => Err(Malformed(format!("the answer {answer:?} about the cause {cause:?}"))),
                }
            })
            .await
    }

    async fn end_some(&self, group: &Group, limit: u32, refused: bool, call: Call) -> Result<EndedBatch> {
        // This step does not add the group to the list: a tick does that for an occupied group, and this step also runs
        // in empty groups, which another process may be forgetting.
        let invocation = self
            .maintenance_call(group, Lateness::Refused(call))
            .number(u64::from(limit.min(ENDS)))
            .number(micros(LOOK_AHEAD))
            .arg(if refused { "1" } else { "0" });
        self.connection
            .call(&self.scripts.end_lapsed, invocation, |reader, now| {
                let next_due = reader.maybe_number()?.map(StoreTime::from_micros);
                let ended = reader.array()?.texts()?;
                Ok(EndedBatch {
                    as_of: now,
                    ended: ended.iter().map(|text| parse("a tenure", text)).collect::<Read<_>>()?,
                    next_due,
                })
            })
            .await
    }

    /// The members past their end. Checks all entries of the lazy index that are due, in bounded parts. Only an
    /// operator's dry run uses it.
    async fn doomed_members(&self, group: &Group) -> Result<Vec<Doomed>> {
        let (mut from, mut doomed) = (0u64, Vec::new());
        loop {
            let invocation = Self::read_call(group).number(from).number(u64::from(BATCH));
            let (liveness, rows, more, now) = self
                .connection
                .call(&self.scripts.due, invocation, |reader, now| {
                    Ok((
                        Liveness::read(reader, now)?,
                        MemberRow::read_all(reader)?,
                        reader.number()? != 0,
                        now,
                    ))
                })
                .await?;
            for row in rows {
                let packed = PackedTenure::read(&row.packed)?;
                if now >= liveness.end(&packed) {
                    let member = MemberId::new(&row.name).map_err(foreign)?;
                    let tenure = TenureId::new(member, packed.term);
                    doomed.push(Doomed {
                        tenure,
                        reason: EndReason::Lapsed,
                        holdings: row.holdings,
                        braked: false,
                    });
                }
            }
            if !more {
                return Ok(doomed);
            }
            from += u64::from(BATCH);
        }
    }

    async fn unreleased(&self, group: &Group, list: &str, limit: usize) -> Result<Vec<Doomed>> {
        let mut found = Vec::new();
        while found.len() < limit {
            let count = (limit - found.len()).min(BATCH as usize);
            let invocation = Self::read_call(group)
                .arg(list)
                .number(found.len() as u64)
                .number(count as u64);
            let lapsed = list != "releasing";
            let part = self
                .connection
                .call(&self.scripts.unreleased, invocation, |reader, now| {
                    let until = StoreTime::from_micros(reader.maybe_number()?.unwrap_or(0));
                    let (lapses, present) = (reader.number()?, reader.number()?);
                    let engaged = until > now && self.options.brake.too_many(lapses, present);
                    read_unreleased(reader, lapsed && engaged)
                })
                .await?;
            let last = part.len() < count;
            found.extend(part);
            if last {
                break;
            }
        }
        Ok(found)
    }
}

fn read_unreleased(reader: &mut Reader, braked: bool) -> Read<Vec<Doomed>> {
    let (mut rows, mut found) = (reader.array()?, Vec::new());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let tenure = parse("a tenure", &row.text()?)?;
        let reason = read_reason(&mut row)?;
        found.push(Doomed {
            tenure,
            reason,
            holdings: read_holdings(&mut row)?,
            braked,
        });
    }
    Ok(found)
}

/// The brake as returned by the steps that it holds back.
pub(crate) fn read_brake(reader: &mut Reader) -> Read<Option<Brake>> {
    let mut brake = reader.array()?;
    Ok(match brake.left() {
        0 => None,
        _ => Some(Brake {
            since: brake.time()?,
            until: brake.time()?,
            lapsed: brake.number()?,
            present: brake.number()?,
        }),
    })
}

fn read_released(reader: &mut Reader) -> Read<ReleasedBatch> {
    let more = reader.number()? != 0;
    let braked = read_brake(reader)?;
    let (mut rows, mut evicted) = (reader.array()?, Vec::new());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let tenure = parse("a tenure", &row.text()?)?;
        let (leases, connections, mut claims) = (row.number()?, row.number()?, BTreeMap::new());
        while row.left() > 0 {
            claims.insert(row.text()?, row.number()?);
        }
        evicted.push(Eviction {
            tenure,
            claims,
            leases,
            connections,
        });
    }
    Ok(ReleasedBatch { evicted, more, braked })
}

/// Builds a status from the raw state of `status.lua`.
fn read_status(reader: &mut Reader, now: StoreTime, options: &StoreOptions) -> Read<GroupStatus> {
    let mut fields = reader.array()?;
    let (resumed, has_pulse, min_ttl) = (fields.maybe_number()?, fields.maybe_number()?, fields.maybe_number()?);
    let last_event = EventId(fields.maybe_number()?.unwrap_or(0));
    let (until, cause) = (
        fields.maybe_number()?.unwrap_or(0),
        fields.maybe_text()?.unwrap_or_default(),
    );
    let unsettled = match until {
        0 => None,
        until => {
            let cause = GapCause::parse(&cause).ok_or_else(|| Malformed(format!("the cause {cause:?}")))?;
            Some(Unsettled {
                cause,
                until: StoreTime::from_micros(until),
            })
        }
    };
    let (since, brake_until) = (fields.maybe_number()?.unwrap_or(0), fields.maybe_number()?.unwrap_or(0));
    let (members, lapsed) = (reader.number()?, reader.number()?);
    let mut first = || Ok::<_, Malformed>(reader.maybe_number()?.map(StoreTime::from_micros));
    let (next_due, next, next_lapsed) = (first()?, first()?, first()?);
    let releasing = reader.number()? + reader.number()?;
    let (leases, sessions, disconnected) = (reader.number()?, reader.number()?, reader.number()?);
    let next_reap = reader.maybe_number()?.map(StoreTime::from_micros);
    let pending_offline = reader.number()?;
    let mut first = || Ok::<_, Malformed>(reader.maybe_number()?.map(StoreTime::from_micros));
    let (next_offline, next_lapsed_offline, empty_since, next_wake) = (first()?, first()?, first()?, first()?);

    let brake = Brake {
        since: StoreTime::from_micros(since),
        until: StoreTime::from_micros(brake_until),
        lapsed,
        present: members,
    };
    let brake = Some(brake).filter(|brake| brake.until > now && options.brake.too_many(lapsed, members));
    // An entry that the brake holds back is due when the brake ends.
    let held_back = |at| brake.map_or(at, |brake| brake.until);
    let next_lapsed = next_lapsed.map(held_back);
    let next_lapsed_offline = next_lapsed_offline.map(held_back);
    Ok(GroupStatus {
        as_of: now,
        members,
        has_pulse: has_pulse == Some(1),
        gap: gap(shortest(min_ttl)),
        resumed_at: resumed.map_or(now, StoreTime::from_micros),
        unsettled,
        brake,
        next_due,
        next_release: next.into_iter().chain(next_lapsed).min(),
        releasing,
        leases,
        sessions,
        disconnected,
        next_reap: next_reap.map(|at| brake.map_or(at, |brake| brake.until.max(at))),
        pending_offline,
        next_offline: next_offline.into_iter().chain(next_lapsed_offline).min(),
        next_wake,
        last_event,
        empty_since,
    })
}
