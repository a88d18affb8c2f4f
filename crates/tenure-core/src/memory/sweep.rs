//! The steps of a sweep, for one group.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::decide::Decide;
use super::ended::ByTime;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::{EventKind, count_by_registry, shares_of};
use crate::id::{Key, MemberId, RegistryName, TenureId};
use crate::membership::EndReason;
use crate::store::Call;
use crate::sweep::{
    BATCH, Doomed, EndLapsed, EndedBatch, Eviction, ForgetGroup, GroupStatus, LOOK_AHEAD, ListDoomed, Release,
    ReleasedBatch, Spare, Status, Tick, turn_of,
};
use crate::time::StoreTime;

/// The number of possibly lapsed members that a dry run checks in addition to its limit.
const DOOMED_LOOKED_AT: usize = 1_000;

impl Decide<Tick> for GroupModel {
    /// Writes the tick and settles the group if its grace is over.
    fn step(&mut self, _: &Tick, _: Call, now: StoreTime) -> Result<GroupStatus> {
        self.open(now, Call::default())?;
        if let Some(unsettled) = self.head().unsettled.filter(|unsettled| now >= unsettled.until) {
            self.change_head(|head| head.unsettled = None);
            self.emit(now, EventKind::GroupSettled).reason = Some(unsettled.cause.as_str().to_owned());
        }
        self.serve_waiting(now);
        self.lift_brake(now, false);
        self.note_empty(now);
        Ok(self.status(now))
    }
}

impl GroupModel {
    /// Records the time since which every tick has found the group empty.
    pub(super) fn note_empty(&mut self, now: StoreTime) {
        let since = self.empty_since.filter(|since| *since <= now);
        let is_empty = !self.status(now).is_occupied() && !self.roster.is_known();
        self.empty_since = is_empty.then(|| since.unwrap_or(now));
    }
}

impl Decide<ForgetGroup> for GroupModel {
    /// Whether the group may be forgotten. If it is still in use, its wait restarts.
    fn step(&mut self, _: &ForgetGroup, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let long = self.options.forget_after;
        if self.empty_since.is_none_or(|since| now.since(since) < long) {
            return Ok(false);
        }
        let is_empty = !self.status(now).is_occupied()
            && self.head().unsettled.is_none()
            && self.brake_in_force(now).is_none()
            && self.ended.table.is_empty()
            && self.leases.reserved.is_empty()
            && self.leases.queue.is_empty()
            && self.targets.is_empty()
            && !self.roster.is_there()
            && self.seq <= now.micros();
        self.empty_since = Some(now);
        Ok(is_empty)
    }
}

impl GroupModel {
    /// The state now.
    pub(crate) fn status(&self, now: StoreTime) -> GroupStatus {
        let brake = self.brake_in_force(now);
        let first = |lapsed: bool| self.ended.visits(lapsed).first().map(|(at, _)| *at);
        let lapsed = match brake {
            Some(brake) => first(true).map(|_| brake.until),
            None => first(true),
        };
        let next_away = self.sessions.away_after(Bound::Unbounded).next().map(|(at, _)| *at);
        GroupStatus {
            as_of: now,
            members: self.lives.table.len() as u64,
            has_pulse: self.service.pulse.is_some(),
            gap: self.gap(),
            resumed_at: self.resumed_for_reading(now),
            unsettled: self.head().unsettled,
            brake,
            next_due: self.lives.next_due(),
            next_release: first(false).into_iter().chain(lapsed).min(),
            releasing: self.ended.releasing(),
            leases: self.leases.table.len() as u64,
            sessions: self.sessions.table.len() as u64,
            disconnected: self.sessions.disconnected(),
            next_reap: next_away.map(|at| brake.map_or(at, |brake| brake.until.max(at))),
            pending_offline: self.roster.offlined.table.len() as u64,
            next_offline: self.next_offline(now),
            next_wake: self.leases.queue.next_wake().map(|at| at.max(self.tick)),
            last_event: self.log.last(),
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
        let due = self.lives.due_by(now + LOOK_AHEAD).take(limit as usize);
        let due: Vec<MemberId> = due.cloned().collect();
        let mut batch = EndedBatch {
            as_of: now,
            ..EndedBatch::default()
        };
        for member in due {
            let Some(live) = self.lives.get(&member) else {
                continue;
            };
            let (tenure, end) = (TenureId::new(member.clone(), live.term), self.end_now(live, now));
            if now >= end {
                self.end_tenure(&tenure, EndReason::Lapsed, now);
                batch.ended.push(tenure);
                continue;
            }
            self.lives.put_off(&member, end);
        }
        batch.next_due = self.lives.next_due();
        for tenure in self.ended.forgettable(limit, now) {
            self.ended.set(tenure, None);
        }
        self.leases.forget_reservations(limit, now);
        self.leases.queue.forget_over(limit, now);
        self.free_overdue(limit, now);
        self.serve_waiting(now);
        self.engage_brake(now);
        Ok(batch)
    }
}

impl Decide<Spare> for GroupModel {
    /// Step 1; once no member is past its end, records that beats are being refused.
    fn step(&mut self, &Spare { limit }: &Spare, call: Call, now: StoreTime) -> Result<EndedBatch> {
        let batch = self.step(&EndLapsed { limit }, call, now)?;
        if !batch.more() {
            self.refused = self.refused.noted(now, self.options.max_ttl);
        }
        Ok(batch)
    }
}

impl Decide<Release> for GroupModel {
    /// Step 2.
    fn step(&mut self, Release(request): &Release, call: Call, now: StoreTime) -> Result<ReleasedBatch> {
        self.open(now, call)?;
        self.lift_brake(now, request.force);
        let braked = self.brake_in_force(now);
        let mut budget = request.limit as usize;
        let candidates = self.releasable(now, braked.is_some(), request.limit.max(BATCH) as usize);
        let turn = turn_of(request.limit, candidates.len()) as usize;
        let mut batch = ReleasedBatch {
            braked,
            ..ReleasedBatch::default()
        };
        for tenure in candidates {
            if budget == 0 {
                break;
            }
            let eviction = self.visit(tenure, turn, &mut budget, &request.pass, now);
            if !eviction.claims.is_empty() || eviction.leases > 0 || eviction.connections > 0 {
                batch.evicted.push(eviction);
            }
        }
        self.serve_waiting(now);
        batch.more = !self.releasable(now, braked.is_some(), 1).is_empty();
        Ok(batch)
    }
}

impl GroupModel {
    /// The turn of one tenure: its claims, then its connections, then its leases, which may have to wait.
    fn visit(&mut self, tenure: TenureId, turn: usize, budget: &mut usize, pass: &str, now: StoreTime) -> Eviction {
        let removed = self.release_claims_of(&tenure, turn.min(*budget));
        *budget -= removed.len();
        let mut room = turn - removed.len();
        let (connections, last) = match self.held.has_claims(&tenure) {
            true => (0, Vec::new()),
            false => self.release_connections_of(&tenure, room.min(*budget), now),
        };
        (*budget, room) = (*budget - connections, room - connections);
        let connections = connections as u64;
        let claims = self.evicted(&tenure, &removed, connections, pass, now);
        let reason = self.reason_of(&tenure).as_str();
        for holding in &last {
            self.tell_disconnected(holding, &tenure, reason, Some(pass), now);
        }
        // Leases come last: those of a process that may still run must wait.
        let others = self.held.has_claims(&tenure) || self.held.has_connections(&tenure);
        let (leases, wait_until) = match others {
            true => (0, None),
            false => self.free_leases_of(&tenure, room.min(*budget), pass, now),
        };
        *budget -= usize::try_from(leases).unwrap_or(*budget);
        self.ended.visit(&tenure, Some(wait_until.unwrap_or(now)));
        Eviction {
            tenure,
            claims,
            leases,
            connections,
        }
    }

    /// The ended tenures that are due for release, in order, at most `most`.
    fn releasable(&self, now: StoreTime, braked: bool, most: usize) -> Vec<TenureId> {
        let first = |list: &ByTime| {
            let due = list.iter().take_while(|(at, _)| *at <= now).take(most);
            due.cloned().collect::<Vec<_>>()
        };
        let mut due = first(self.ended.visits(false));
        if !braked {
            due.extend(first(self.ended.visits(true)));
        }
        due.sort();
        due.into_iter().take(most).map(|(_, tenure)| tenure).collect()
    }

    /// Removes up to `room` claims of an ended tenure.
    fn release_claims_of(&mut self, tenure: &TenureId, room: usize) -> Vec<(RegistryName, Key)> {
        let claims = self.held.claims(tenure).take(room);
        let claims: Vec<_> = claims.map(|(registry, key)| (registry.clone(), key.clone())).collect();
        for (registry, key) in &claims {
            self.set_claim(registry, key, None);
        }
        self.note_loss(tenure);
        claims
    }

    /// Writes the events of removed holdings, several if there are many. Returns the counts by registry.
    fn evicted(
        &mut self,
        tenure: &TenureId,
        removed: &[(RegistryName, Key)],
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
    /// Lists what a pass would release.
    fn read(&self, &ListDoomed { limit }: &ListDoomed, now: StoreTime) -> Result<Vec<Doomed>> {
        let resumed_at = self.resumed_for_reading(now);
        let due = self.lives.due_by(now).take(limit as usize + DOOMED_LOOKED_AT);
        let mut lapsed: Vec<_> = due
            .filter_map(|member| {
                let live = self.lives.get(member)?;
                let past = now >= self.end_time(live, resumed_at, now);
                past.then(|| TenureId::new(member.clone(), live.term))
            })
            .collect();
        self.lives.table.see_all();
        lapsed.sort_by(|one, two| one.member().cmp(two.member()));
        let lapsed = lapsed.into_iter().map(|tenure| Doomed {
            holdings: self.held.of(&tenure),
            tenure,
            reason: EndReason::Lapsed,
            braked: false,
        });
        let braked = self.brake_in_force(now).is_some();
        let left = [false, true].into_iter().flat_map(|of_lapsed| {
            let list = self.ended.visits(of_lapsed).iter();
            list.map(move |(_, tenure)| Doomed {
                holdings: self.held.of(tenure),
                tenure: tenure.clone(),
                reason: self.reason_of(tenure),
                braked: braked && of_lapsed,
            })
        });
        Ok(lapsed.chain(left).take(limit as usize).collect())
    }
}
