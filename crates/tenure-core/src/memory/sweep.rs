//! The steps of a sweep, on one group.

use std::collections::BTreeMap;

use super::decide::Decide;
use super::group::{GroupModel, Holding};
use crate::error::Result;
use crate::event::{EventKind, count_by_registry, shares_of};
use crate::id::{MemberId, TenureId};
use crate::membership::EndReason;
use crate::store::Call;
use crate::sweep::{
    Doomed, EndLapsed, EndedBatch, Eviction, ForgetGroup, GroupStatus, ListDoomed, Release, ReleasedBatch, Spare,
    Status, Tick, turn_of,
};
use crate::time::StoreTime;

impl Decide<Tick> for GroupModel {
    /// Keeps the cadence.
    fn step(&mut self, _: &Tick, _: Call, now: StoreTime) -> Result<GroupStatus> {
        self.open(now, Call::default())?;
        if let Some(unsettled) = self.unsettled.filter(|unsettled| now >= unsettled.until) {
            self.unsettled = None;
            self.emit(now, EventKind::GroupSettled).reason = Some(unsettled.cause.as_str().to_owned());
        }
        self.lift_brake(now, false);
        let since = self.empty_since.filter(|since| *since <= now);
        let is_empty = !self.status(now).is_occupied() && !self.roster.is_known();
        self.empty_since = is_empty.then(|| since.unwrap_or(now));
        Ok(self.status(now))
    }
}

impl Decide<ForgetGroup> for GroupModel {
    /// Whether the group may be forgotten. If something still keeps it, its wait restarts.
    fn step(&mut self, _: &ForgetGroup, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let long = self.options.forget_after;
        if self.empty_since.is_none_or(|since| now.since(since) < long) {
            return Ok(false);
        }
        let is_empty = !self.status(now).is_occupied()
            && self.unsettled.is_none()
            && self.brake_in_force(now).is_none()
            && self.ended.is_empty()
            && self.reserved.is_empty()
            && self.targets.is_empty()
            && self.aliases.is_empty()
            && !self.roster.is_there()
            && self.seq <= now.micros();
        self.empty_since = Some(now);
        Ok(is_empty)
    }
}

impl GroupModel {
    /// The state now.
    pub(super) fn status(&self, now: StoreTime) -> GroupStatus {
        let brake = self.brake_in_force(now);
        let mut next_release = self.releasing.0.values().copied().min();
        let lapsed = match brake {
            Some(brake) => (!self.releasing_lapsed.0.is_empty()).then_some(brake.until),
            None => self.releasing_lapsed.0.values().copied().min(),
        };
        if let Some(at) = lapsed {
            next_release = Some(next_release.map_or(at, |other| other.min(at)));
        }
        GroupStatus {
            as_of: now,
            members: self.members.len() as u64,
            gap: self.gap(),
            resumed_at: self.resumed_for_reading(now),
            unsettled: self.unsettled,
            brake,
            next_due: self.due.first().map(|(at, _)| *at),
            next_release,
            releasing: (self.releasing.0.len() + self.releasing_lapsed.0.len()) as u64,
            leases: self.leases.len() as u64,
            sessions: self.sessions.len() as u64,
            disconnected: self.away.len() as u64,
            next_reap: self
                .away
                .first()
                .map(|(at, _)| brake.map_or(*at, |brake| brake.until.max(*at))),
            pending_offline: self.roster.offlined.len() as u64,
            next_offline: self.next_offline(now),
            last_event: self.log.last,
            empty_since: self.empty_since,
        }
    }
}

impl Decide<Status> for GroupModel {
    fn read(&self, _: &Status, now: StoreTime) -> Result<GroupStatus> {
        Ok(self.status(now))
    }
}

impl Decide<EndLapsed> for GroupModel {
    /// Step 1.
    fn step(&mut self, &EndLapsed { limit }: &EndLapsed, call: Call, now: StoreTime) -> Result<EndedBatch> {
        self.open(now, call)?;
        let due: Vec<MemberId> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit as usize)
            .map(|(_, member)| member.clone())
            .collect();
        let mut batch = EndedBatch {
            as_of: now,
            ..EndedBatch::default()
        };
        for member in due {
            let Some(live) = self.members.get(&member) else {
                continue;
            };
            let (tenure, end, before) = (
                TenureId::new(member.clone(), live.term),
                self.end_time(live, self.resumed_at, now),
                live.due,
            );
            if now >= end {
                self.end_tenure(&tenure, EndReason::Lapsed, now);
                batch.ended.push(tenure);
                continue;
            }
            self.due.remove(&(before, member.clone()));
            self.due.insert((end, member.clone()));
            if let Some(live) = self.members.get_mut(&member) {
                live.due = end;
            }
        }
        batch.more = self.due.first().is_some_and(|(at, _)| *at <= now);
        self.forget(limit, now);
        self.forget_reservations(limit, now);
        self.engage_brake(now);
        Ok(batch)
    }
}

impl Decide<Spare> for GroupModel {
    /// Step 1; once no member is past its end, notes that beats are refused now.
    fn step(&mut self, &Spare { limit }: &Spare, call: Call, now: StoreTime) -> Result<EndedBatch> {
        let batch = self.step(&EndLapsed { limit }, call, now)?;
        if !batch.more {
            self.refused = self.refused.noted(now, self.options.max_ttl);
        }
        Ok(batch)
    }
}

impl GroupModel {
    fn forget(&mut self, limit: u32, now: StoreTime) {
        let due = self.forget.iter().take_while(|(at, _)| *at <= now);
        let mut old: Vec<_> = due
            .filter(|(_, tenure)| !self.holds_anything(tenure))
            .cloned()
            .collect();
        // Those that ended in one instant go in the order of their text, as every store keeps them.
        old.sort_by_cached_key(|(at, tenure)| (*at, tenure.to_string()));
        for entry in old.into_iter().take(limit as usize) {
            self.ended.remove(&entry.1);
            self.forget.remove(&entry);
        }
    }
}

impl Decide<Release> for GroupModel {
    /// Step 2.
    fn step(&mut self, Release(request): &Release, call: Call, now: StoreTime) -> Result<ReleasedBatch> {
        self.open(now, call)?;
        self.lift_brake(now, request.force);
        let braked = self.brake_in_force(now);
        let mut budget = request.limit as usize;
        let candidates = self.releasable(now, braked.is_some());
        let turn = turn_of(request.limit, candidates.len()) as usize;
        let mut batch = ReleasedBatch {
            braked,
            ..ReleasedBatch::default()
        };
        for tenure in candidates {
            if budget == 0 {
                break;
            }
            let holdings: Vec<Holding> = self
                .held
                .get(&tenure)
                .into_iter()
                .flatten()
                .take(turn.min(budget))
                .cloned()
                .collect();
            budget -= holdings.len();
            let mut room = turn - holdings.len();
            let removed = self.release_holdings(&tenure, &holdings);
            let (connections, looked_at, last) = match self.held.contains_key(&tenure) {
                true => (0, 0, Vec::new()),
                false => self.release_connections_of(&tenure, room.min(budget), now),
            };
            (budget, room) = (budget - looked_at, room - looked_at);
            let claims = self.evicted(&tenure, removed, connections, &request.pass, now);
            let reason = self.reason_of(&tenure).as_str();
            for holding in &last {
                self.tell_disconnected(holding, &tenure, reason, Some(&request.pass), now);
            }
            // Leases come last: those of a process that may still be running have to wait.
            let others = self.held.contains_key(&tenure) || self.connected.contains_key(&tenure);
            let (leases, wait_until) = match others {
                true => (0, None),
                false => self.free_leases_of(&tenure, room.min(budget), &request.pass, now),
            };
            budget -= usize::try_from(leases).unwrap_or(budget);
            if let Some(at) = self
                .releasing
                .0
                .get_mut(&tenure)
                .or_else(|| self.releasing_lapsed.0.get_mut(&tenure))
            {
                *at = wait_until.unwrap_or(now);
            }
            if !claims.is_empty() || leases > 0 || connections > 0 {
                batch.evicted.push(Eviction {
                    tenure,
                    claims,
                    leases,
                    connections,
                });
            }
        }
        batch.more = !self.releasable(now, braked.is_some()).is_empty();
        Ok(batch)
    }
}

impl GroupModel {
    /// Ended tenures whose turn it is, in order.
    fn releasable(&self, now: StoreTime, braked: bool) -> Vec<TenureId> {
        let lapsed = self.releasing_lapsed.0.iter().filter(|_| !braked);
        let mut due: Vec<_> = self
            .releasing
            .0
            .iter()
            .chain(lapsed)
            .filter(|(_, at)| **at <= now)
            .collect();
        due.sort_by_key(|(tenure, at)| (**at, tenure.to_string()));
        due.into_iter().map(|(tenure, _)| tenure.clone()).collect()
    }

    /// Compare-and-delete: what has moved to someone else meanwhile only leaves the list of this tenure.
    fn release_holdings(&mut self, tenure: &TenureId, holdings: &[Holding]) -> Vec<Holding> {
        let mut removed = Vec::new();
        for holding in holdings {
            if self.claims.get(&holding.0).and_then(|claims| claims.get(&holding.1)) == Some(tenure) {
                self.remove_claim(&holding.0, &holding.1);
                removed.push(holding.clone());
            }
            self.drop_holding(tenure, holding);
        }
        removed
    }

    /// Tells what was removed, unless nothing was: in several events when it is much. Answers how many, by registry.
    fn evicted(
        &mut self,
        tenure: &TenureId,
        removed: Vec<Holding>,
        mut connections: u64,
        pass: &str,
        now: StoreTime,
    ) -> BTreeMap<String, u64> {
        let mut keys: Vec<String> = removed
            .iter()
            .map(|(registry, key)| format!("{registry}/{key}"))
            .collect();
        keys.sort();
        if keys.is_empty() && connections == 0 {
            return BTreeMap::new();
        }
        let reason = self.reason_of(tenure).as_str().to_owned();
        let listed = self.options.event_keys;
        for share in shares_of(&keys, listed) {
            let event = self.emit(now, EventKind::Evicted);
            event.tenure = Some(tenure.clone());
            event.reason = Some(reason.clone());
            event.pass = Some(pass.to_owned());
            event.counts = count_by_registry(share);
            if listed {
                event.keys = share.to_vec();
            }
            event.connections = std::mem::take(&mut connections);
        }
        count_by_registry(&keys)
    }
}

impl Decide<ListDoomed> for GroupModel {
    /// What a pass would do.
    fn read(&self, &ListDoomed { limit }: &ListDoomed, now: StoreTime) -> Result<Vec<Doomed>> {
        let resumed_at = self.resumed_for_reading(now);
        let lapsed = self
            .members
            .iter()
            .filter(|(_, live)| now >= self.end_time(live, resumed_at, now))
            .map(|(member, live)| {
                let tenure = TenureId::new(member.clone(), live.term);
                Doomed {
                    holdings: self.holdings(&tenure),
                    tenure,
                    reason: EndReason::Lapsed,
                    braked: false,
                }
            });
        let braked = self.brake_in_force(now).is_some();
        let left = [(&self.releasing, false), (&self.releasing_lapsed, braked)]
            .into_iter()
            .flat_map(|(list, braked)| {
                let mut list: Vec<_> = list.0.iter().collect();
                list.sort_by_key(|(tenure, at)| (**at, tenure.to_string()));
                list.into_iter().map(move |(tenure, _)| Doomed {
                    holdings: self.holdings(tenure),
                    tenure: tenure.clone(),
                    reason: self.reason_of(tenure),
                    braked,
                })
            });
        Ok(lapsed.chain(left).take(limit as usize).collect())
    }
}
