//! The janitor's steps: keep the cadence, end what lapsed, release what the ended held.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use tenure_core::call::Serve;
use tenure_core::event::{EventKind, count_by_registry, shares_of};
use tenure_core::membership::EndReason;
use tenure_core::settling::GapCause;
use tenure_core::store::Call;
use tenure_core::sweep::{
    Doomed, EndLapsed, EndedBatch, Eviction, ForgetGroup, GroupStatus, ListDoomed, Reap, ReapedBatch, Reconcile,
    Reconciled, Release, ReleaseRequest, ReleasedBatch, Settle, SettleReport, Settling, Spare, Status, Tick, turn_of,
};
use tenure_core::{Group, MemberId, Result, StoreTime, TenureId};

use crate::ended::Ended;
use crate::error::Cause;
use crate::event::Draft;
use crate::live::{Entry, Table};
use crate::session::{Gone, Place};
use crate::sql::{instant, read_holdings, read_instant, read_name, statements};
use crate::step::{Answer, Step};
use crate::store::SqliteStore;

statements! { "sweep.sql":
    COUNT = "count",
    RELEASABLE = "releasable",
    VISIT_AGAIN = "visit_again",
    FORGET = "forget",
    DOOMED = "doomed",
    ANY_LEFT = "any_left",
}
statements! { "registry.sql":
    HELD = "held",
}

/// The most items of a dry run that are counted.
const DOOMED_MOST: u32 = 10_000;

impl Step<'_> {
    /// Keeps the cadence, when there is something to write down.
    fn tick(&mut self) -> Answer<GroupStatus> {
        if let Some(unsettled) = self.meta.unsettled.filter(|unsettled| self.now >= unsettled.until) {
            self.meta.unsettled = None;
            self.emit(Draft::new(EventKind::GroupSettled).because(unsettled.cause.as_str()))?;
        }
        self.lift_brake(false)?;
        if *self.lists_changed {
            self.meta.refresh_visits(self.sql, self.id)?;
        }
        let mut table = self.live.lock();
        let (brake, resumed_at, next_due) = (&self.options.brake, self.meta.resumed_at, table.next_due());
        let mut status = self.meta.status(brake, self.now, resumed_at, next_due);
        table.note_empty(&mut status, self.meta.roster.is_known());
        Ok(Ok(status))
    }

    /// Whether the group may go, which the commit then does. If something still keeps it, its wait restarts.
    fn forget_group(&mut self) -> Answer<bool> {
        let mut table = self.live.lock();
        let long = self.options.forget_after;
        if table.empty_since.is_none_or(|since| self.now.since(since) < long) {
            return Ok(Ok(false));
        }
        table.empty_since = Some(self.now);
        let status = self.meta.status(&self.options.brake, self.now, table.resumed_at, None);
        drop(table);
        let is_quiet = !status.is_occupied() && status.unsettled.is_none() && status.brake.is_none();
        let any: bool = self
            .sql
            .prepare_cached(ANY_LEFT)?
            .query_row([self.id], |row| row.get(0))?;
        *self.forgotten = is_quiet && !any && self.meta.seq <= self.now.micros();
        Ok(Ok(*self.forgotten))
    }

    /// An operator's word that nothing was held.
    fn settle(&mut self, named: Option<GapCause>) -> Answer<Settling> {
        let Some(unsettled) = self.meta.unsettled else {
            return Ok(Ok(Settling::Settled));
        };
        if !unsettled.cause.is_ended_by(named) {
            return Ok(Ok(Settling::Left(unsettled.cause)));
        }
        self.meta.unsettled = None;
        self.meta.settled = unsettled.until;
        self.emit(Draft::new(EventKind::GroupSettled).because("operator"))?;
        Ok(Ok(Settling::Ended))
    }

    /// Step 1.
    fn end_lapsed(&mut self, limit: u32) -> Answer<EndedBatch> {
        let due = self.live.lock().due_by(self.now, limit as usize);
        let mut batch = EndedBatch {
            as_of: self.now,
            ..EndedBatch::default()
        };
        for member in due {
            let Some(entry) = self.live.lock().head(&member) else {
                continue;
            };
            let tenure = TenureId::new(member, entry.term);
            if self.end_if_past(&tenure)? {
                batch.ended.push(tenure);
            } else {
                self.live
                    .lock()
                    .put_off(tenure.member(), self.meta.resumed_at, self.now);
            }
        }
        batch.more = !self.live.lock().due_by(self.now, 1).is_empty();
        self.sql
            .prepare_cached(FORGET)?
            .execute(params![self.id, instant(self.now), limit])?;
        self.forget_reservations(limit)?;
        self.engage_brake()?;
        Ok(Ok(batch))
    }

    /// Step 1; once no member is past its end, notes that beats are refused now.
    fn spare(&mut self, limit: u32) -> Answer<EndedBatch> {
        let done = self.end_lapsed(limit)?;
        if done.as_ref().is_ok_and(|batch| !batch.more) {
            self.live.lock().spare(self.now, self.options.max_ttl);
        }
        Ok(done)
    }

    /// Step 2.
    fn release(&mut self, request: &ReleaseRequest) -> Answer<ReleasedBatch> {
        self.lift_brake(request.force)?;
        let braked = self.meta.brake_in_force(&self.options.brake, self.now);
        let mut budget = request.limit;
        let candidates = self.releasable(braked.is_some(), request.limit)?;
        let turn = turn_of(request.limit, candidates.len());
        let mut batch = ReleasedBatch {
            braked,
            ..ReleasedBatch::default()
        };
        for candidate in candidates {
            if budget == 0 {
                break;
            }
            let turn = turn.min(budget);
            let eviction = self.visit(candidate, turn, &request.pass, &mut budget)?;
            if !eviction.claims.is_empty() || eviction.leases > 0 || eviction.connections > 0 {
                batch.evicted.push(eviction);
            }
        }
        batch.more = !self.releasable(braked.is_some(), 1)?.is_empty();
        Ok(Ok(batch))
    }

    /// One tenure's turn: its claims, when none is left its connections, and when none of either is left its leases, which
    /// may have to wait.
    fn visit(&mut self, candidate: Candidate, turn: u32, pass: &str, budget: &mut u32) -> Result<Eviction, Cause> {
        let Candidate { tenure, ended, .. } = candidate;
        let removed = self.release_some(&tenure, turn)?;
        let mut left = turn - removed.looked_at;
        let gone = match removed.more {
            true => Gone::default(),
            false => self.release_connections(&tenure, left)?,
        };
        left -= gone.looked_at;
        let (more, connections) = (removed.more || gone.more, gone.removed);
        let claims = self.evicted(&tenure, ended, &removed.keys, connections, pass)?;
        for last in &gone.last {
            self.tell_disconnected(last, Some(&tenure), ended.reason.as_str(), Some(pass))?;
        }
        let (leases, wait_until) = match more {
            true => (0, None),
            false => self.evict_leases(&tenure, ended, left, pass)?,
        };
        *budget -= turn - left + leases;
        let text = tenure.to_string();
        if !self.strike_if_empty(&text)? {
            let visit_at = instant(wait_until.unwrap_or(self.now));
            self.sql
                .prepare_cached(VISIT_AGAIN)?
                .execute(params![self.id, text, visit_at])?;
        }
        *self.lists_changed = true;
        Ok(Eviction {
            tenure,
            claims,
            leases: u64::from(leases),
            connections,
        })
    }

    /// Ended tenures whose turn it is, in order. At most `limit`: one that has to wait uses up no budget, but leaves the
    /// list until then.
    fn releasable(&self, braked: bool, limit: u32) -> Result<Vec<Candidate>, Cause> {
        let mut candidates = Vec::new();
        for lapsed in [false, true] {
            if lapsed && braked {
                continue;
            }
            let mut select = self.sql.prepare_cached(RELEASABLE)?;
            let mut rows = select.query(params![self.id, lapsed, instant(self.now), limit])?;
            while let Some(row) = rows.next()? {
                candidates.push(Candidate {
                    tenure: read_name(row, 0)?,
                    visit_at: read_instant(row, 1)?,
                    ended: Ended::read(row, 2)?,
                });
            }
        }
        candidates.sort_by_cached_key(|candidate| (candidate.visit_at, candidate.tenure.to_string()));
        candidates.truncate(limit as usize);
        Ok(candidates)
    }

    /// Removes some claims of an ended tenure, by compare-and-delete.
    fn release_some(&self, tenure: &TenureId, limit: u32) -> Result<Removed, Cause> {
        let text = tenure.to_string();
        let mut held: Vec<(String, String)> = self
            .sql
            .prepare_cached(HELD)?
            .query_map(params![self.id, text, limit + 1], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let more = held.len() > limit as usize;
        held.truncate(limit as usize);
        let mut removed = Removed {
            more,
            looked_at: u32::try_from(held.len()).unwrap_or(limit),
            ..Removed::default()
        };
        for (registry, key) in held {
            if self.remove_claim(&registry, &key, &text)? {
                removed.keys.push(format!("{registry}{key}"));
            }
        }
        removed.keys.sort();
        Ok(removed)
    }

    /// Tells what was removed, unless nothing was: in several events when it is much. Answers how many, by registry.
    fn evicted(
        &mut self,
        tenure: &TenureId,
        ended: Ended,
        keys: &[String],
        mut connections: u64,
        pass: &str,
    ) -> Result<BTreeMap<String, u64>, Cause> {
        if keys.is_empty() && connections == 0 {
            return Ok(BTreeMap::new());
        }
        let listed = self.options.event_keys;
        for share in shares_of(keys, listed) {
            let counts = count_by_registry(share);
            let mut event = Draft::new(EventKind::Evicted)
                .of(tenure)
                .connections(std::mem::take(&mut connections))
                .because(ended.reason.as_str())
                .in_pass(pass);
            for (registry, count) in &counts {
                event.count(registry, *count);
            }
            if listed {
                event = event.keys(share);
            }
            self.emit(event)?;
        }
        Ok(count_by_registry(keys))
    }
}

/// An ended tenure whose turn it is.
struct Candidate {
    tenure: TenureId,
    visit_at: StoreTime,
    ended: Ended,
}

/// The claims that were removed from one.
#[derive(Default)]
struct Removed {
    looked_at: u32,
    /// Claims are left.
    more: bool,
    /// As `registry/key`, in order.
    keys: Vec<String>,
}

impl Table {
    /// The smallest entry of the lazy index.
    fn next_due(&self) -> Option<StoreTime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Members whose entry in the lazy index is due and that the open transaction has not changed.
    fn due_by(&self, now: StoreTime, limit: usize) -> Vec<MemberId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let settled = due.filter(|(_, member)| !self.pending.contains_key(member));
        settled.take(limit).map(|(_, member)| member.clone()).collect()
    }

    /// Moves a member that is not past its end to its true place in the lazy index.
    fn put_off(&mut self, member: &MemberId, resumed_at: StoreTime, now: StoreTime) {
        let Some(entry) = self.members.get_mut(member) else {
            return;
        };
        let (before, end) = (entry.due, entry.end(resumed_at, now));
        entry.due = end;
        self.due.remove(&(before, member.clone()));
        self.due.insert((end, member.clone()));
    }

    /// Members past their end, by name.
    fn lapsed(&self, now: StoreTime, limit: usize) -> Vec<TenureId> {
        let resumed_at = self.resumed_for_reading(now);
        let past = |member: &MemberId| {
            let entry: &Entry = self.members.get(member)?;
            (now >= entry.end(resumed_at, now)).then(|| TenureId::new(member.clone(), entry.term))
        };
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let mut lapsed: Vec<TenureId> = due.filter_map(|(_, member)| past(member)).collect();
        lapsed.sort_by(|one, two| one.member().cmp(two.member()));
        lapsed.truncate(limit);
        lapsed
    }
}

/// What lapsed members hold, and the ended tenures with holdings left.
fn doomed_rows(
    sql: &Connection,
    id: i64,
    lapsed: Vec<TenureId>,
    braked: bool,
    limit: u32,
) -> Result<Vec<Doomed>, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let listed: HashSet<TenureId> = lapsed.iter().cloned().collect();
    let mut doomed = Vec::new();
    for tenure in lapsed {
        let holdings = snapshot
            .prepare_cached(COUNT)?
            .query_row(params![id, tenure.to_string()], |row| read_holdings(row, 0))?;
        doomed.push(Doomed {
            tenure,
            reason: EndReason::Lapsed,
            holdings,
            braked: false,
        });
    }
    for lapsed in [false, true] {
        let mut select = snapshot.prepare_cached(DOOMED)?;
        let mut rows = select.query(params![id, lapsed, limit])?;
        while let Some(row) = rows.next()? {
            let (tenure, reason): (TenureId, String) = (read_name(row, 0)?, row.get(1)?);
            // It may have been ended since the live table was looked at.
            if !listed.contains(&tenure) {
                doomed.push(Doomed {
                    tenure,
                    reason: EndReason::parse(&reason).unwrap_or(EndReason::Unknown),
                    holdings: read_holdings(row, 2)?,
                    braked: lapsed && braked,
                });
            }
        }
    }
    doomed.truncate(limit as usize);
    Ok(doomed)
}

#[async_trait]
impl Serve<Tick> for SqliteStore {
    async fn serve(&self, group: &Group, _: Tick, _: Call) -> Result<GroupStatus> {
        if let Some(live) = self.live(group)? {
            let brake = &self.options().brake;
            let mut table = live.lock();
            let now = self.clock().now();
            if table.observe(now).is_none() && !table.meta.wants_tick(brake, now) {
                // Nothing to write down: an idle group's cadence costs no transaction.
                table.tick = now;
                let mut status = table.meta.status(brake, now, table.resumed_at, table.next_due());
                let has_roster = table.meta.roster.is_known();
                table.note_empty(&mut status, has_roster);
                drop(table);
                self.keep_high_water();
                return Ok(status);
            }
        }
        if self.is_forgotten(group) {
            return Ok(self.status_of_none());
        }
        self.step(group, Call::default(), |step| step.tick()).await
    }
}

#[async_trait]
impl Serve<EndLapsed> for SqliteStore {
    async fn serve(&self, group: &Group, ask: EndLapsed, call: Call) -> Result<EndedBatch> {
        if self.is_forgotten(group) {
            return Ok(EndedBatch::default());
        }
        self.step(group, call, move |step| step.end_lapsed(ask.limit)).await
    }
}

#[async_trait]
impl Serve<Spare> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Spare, call: Call) -> Result<EndedBatch> {
        self.step(group, call, move |step| step.spare(ask.limit)).await
    }
}

#[async_trait]
impl Serve<Release> for SqliteStore {
    async fn serve(&self, group: &Group, Release(ask): Release, call: Call) -> Result<ReleasedBatch> {
        self.step(group, call, move |step| step.release(&ask)).await
    }
}

#[async_trait]
impl Serve<Reap> for SqliteStore {
    async fn serve(&self, group: &Group, Reap(ask): Reap, call: Call) -> Result<ReapedBatch> {
        self.step(group, call, move |step| step.reap(&ask)).await
    }
}

#[async_trait]
impl Serve<Reconcile> for SqliteStore {
    async fn serve(&self, group: &Group, Reconcile(ask): Reconcile, call: Call) -> Result<Reconciled> {
        let place = Place::parse(ask.after.as_deref())?;
        self.step(group, call, move |step| step.reconcile(place, ask.limit))
            .await
    }
}

#[async_trait]
impl Serve<ForgetGroup> for SqliteStore {
    async fn serve(&self, group: &Group, _: ForgetGroup, call: Call) -> Result<bool> {
        if self.live(group)?.is_none() {
            return Ok(true);
        }
        self.step(group, call, |step| step.forget_group()).await
    }
}

#[async_trait]
impl Serve<ListDoomed> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ListDoomed, _: Call) -> Result<Vec<Doomed>> {
        let limit = ask.limit.min(DOOMED_MOST);
        let Some(live) = self.live(group)? else {
            return Ok(Vec::new());
        };
        let brake = &self.options().brake;
        let (lapsed, braked) = live.look(self.clock(), |table, now| {
            let braked = table.meta.brake_in_force(brake, now).is_some();
            (table.lapsed(now, limit as usize), braked)
        });
        self.read(move |sql| doomed_rows(sql, live.id, lapsed, braked, limit))
            .await
    }
}

#[async_trait]
impl Serve<Status> for SqliteStore {
    async fn serve(&self, group: &Group, _: Status, _: Call) -> Result<GroupStatus> {
        let brake = &self.options().brake;
        let Some(live) = self.live(group)? else {
            return Ok(self.status_of_none());
        };
        Ok(live.look(self.clock(), |table, now| {
            let resumed_at = table.resumed_for_reading(now);
            GroupStatus {
                empty_since: table.empty_since,
                ..table.meta.status(brake, now, resumed_at, table.next_due())
            }
        }))
    }
}

#[async_trait]
impl Serve<Settle> for SqliteStore {
    async fn serve(&self, group: &Option<Group>, Settle { cause }: Settle, call: Call) -> Result<SettleReport> {
        let groups = match group {
            Some(group) => vec![group.clone()],
            None => {
                // First those to come, so that none is made in between.
                self.settle_new(cause, call).await?;
                self.group_names()?
            }
        };
        let mut report = SettleReport::default();
        for group in groups {
            let settling = self.step(&group, call, move |step| step.settle(cause)).await?;
            report.add(group, settling);
        }
        Ok(report)
    }
}
