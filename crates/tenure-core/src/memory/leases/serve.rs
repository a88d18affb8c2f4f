//! Waiting for a lease: joining and leaving the queue, and granting freed leases to the first living waiter.

use super::PlaceKey;
use super::acquire::Grant;
use super::queue::{Served, Waiter};
use crate::error::Result;
use crate::id::{Group, LeaseName, MemberId, NodeId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, MAX_WAITING_PER_GROUP, MAX_WAITING_PER_LEASE, Queue, Token, WaitingTurn, Withdraw,
    Withdrawn,
};
use crate::membership::Revision;
use crate::memory::GroupModel;
use crate::memory::decide::Decide;
use crate::memory::rows::LeaseRow;
use crate::store::Call;
use crate::sweep::Unsettled;
use crate::time::StoreTime;

/// The maximum number of waiters that one step serves or removes; the next step serves more.
pub(super) const SERVED: usize = 200;
/// The number of waiters at the head of a queue that are looked at to find a living one. A step removes half of them.
const LOOKED_AT: usize = 2 * SERVED;
/// The number of waiters at the head of a queue whose tenures a read looks at; the others are counted as living.
const COUNTED: usize = 1_000;

impl Decide<Withdraw> for GroupModel {
    /// Compares the tenure and the number of the request, and else does nothing: a client that asked again on another
    /// connection keeps what it has.
    fn step(&mut self, ask: &Withdraw, call: Call, now: StoreTime) -> Result<Withdrawn> {
        self.open(now, call)?;
        let withdrawn = match self.require_alive(&ask.tenure, now) {
            Ok(()) => self.withdraw(ask, now),
            Err(_) => Withdrawn::Nothing,
        };
        self.serve_waiting(now);
        self.engage_brake(now);
        Ok(withdrawn)
    }
}

impl GroupModel {
    fn withdraw(&mut self, Withdraw { tenure, lease, request }: &Withdraw, now: StoreTime) -> Withdrawn {
        let queue = &mut self.leases.queue;
        if queue
            .find(lease, tenure)
            .is_some_and(|waiter| waiter.request == *request)
        {
            queue.leave(lease, tenure);
            queue.wake(lease, StoreTime::ZERO);
            return Withdrawn::Removed;
        }
        let granted = self.grant_of(tenure, lease);
        // A lost tail may have held a later request for the same grant.
        let is_of = |row: &LeaseRow| row.request == Some(*request) && row.token.get() > self.last_of_gap;
        let Some((key, row)) = granted.filter(|(_, row)| is_of(row)) else {
            return Withdrawn::Nothing;
        };
        let (token, is_revoked) = (row.token, row.revoked.is_some());
        let reason = if is_revoked { "revoked" } else { "given_back" };
        self.free_place(&key, reason, |_| {}, now);
        let revision = Revision(self.next_number(now));
        self.revise(tenure, revision);
        Withdrawn::GivenBack { token }
    }

    /// Joins the queue, or keeps the place with the number and the end of this request.
    pub(super) fn join_queue(
        &mut self,
        ask: &Acquire,
        lease: &LeaseName,
        queue: &Queue,
        wake: StoreTime,
        now: StoreTime,
    ) -> AcquireOutcome {
        let before = self.leases.queue.find(lease, &ask.tenure).cloned();
        let known = before.as_ref().map(|waiter| waiter.number);
        let (all, of_lease) = self.leases.queue.counts(lease);
        let full = [(all, MAX_WAITING_PER_GROUP), (of_lease, MAX_WAITING_PER_LEASE)];
        if let Some((waiting, _)) = full.iter().find(|(count, limit)| known.is_none() && count >= limit) {
            let waiting = u32::try_from(*waiting).unwrap_or(u32::MAX);
            return AcquireOutcome::QueueFull { waiting };
        }
        let until = now + queue.within;
        let number = known.unwrap_or_else(|| self.next_number(now));
        let waiter = Waiter {
            number,
            tenure: self.own_name(&ask.tenure),
            request: queue.request,
            holders: ask.holders,
            node: queue.node.clone(),
            until,
        };
        self.leases.queue.put(lease, waiter);
        self.leases.queue.wake(lease, wake);
        if let Some(waiter) = before.filter(|before| before.node != queue.node) {
            let (lease, replaced, at) = (lease.clone(), true, now);
            let replaced = Served {
                lease,
                waiter,
                replaced,
                at,
            };
            // The queue is not stored, so nothing has to be durable first.
            self.leases.queue.note_served(0, replaced);
        }
        let ahead = u32::try_from(self.leases.queue.ahead(lease, number)).unwrap_or(u32::MAX);
        AcquireOutcome::Waiting { ahead, until }
    }

    /// Whether a waiter can be granted a lease: its tenure is alive, and its wait is not over.
    fn is_waiting(&self, waiter: &Waiter, resumed_at: StoreTime, now: StoreTime) -> bool {
        now < waiter.until && self.is_alive(&waiter.tenure, resumed_at, now)
    }

    /// The first living waiter of a lease, among those at the head of its queue. If there are too many to look at in one
    /// step, it is the last one looked at: a living one may stand behind it, and none may be overtaken.
    pub(super) fn first_waiter(&self, lease: &LeaseName, now: StoreTime) -> Option<&Waiter> {
        if !self.leases.queue.has(lease) {
            return None;
        }
        let resumed_at = self.head().resumed_at;
        let head = || self.leases.queue.of(lease).take(LOOKED_AT);
        let living = head().find(|waiter| self.is_waiting(waiter, resumed_at, now));
        let (_, all) = self.leases.queue.counts(lease);
        living.or_else(|| head().last().filter(|_| all > LOOKED_AT))
    }

    /// The number of living waiters of a lease.
    pub(super) fn waiting(&self, lease: &LeaseName, resumed_at: StoreTime, now: StoreTime) -> u32 {
        let waiters = self.leases.queue.of(lease).take(COUNTED);
        let living = waiters.filter(|waiter| self.is_waiting(waiter, resumed_at, now));
        let (_, all) = self.leases.queue.counts(lease);
        u32::try_from(living.count() + all.saturating_sub(COUNTED)).unwrap_or(u32::MAX)
    }

    /// The grace in which no lease is granted.
    pub(super) fn unsettled_now(&self, now: StoreTime) -> Option<Unsettled> {
        self.head().unsettled.filter(|unsettled| now < unsettled.until)
    }

    /// Grants the leases that may be free to their first living waiters. Part of every step that can free a lease.
    pub(in crate::memory) fn serve_waiting(&mut self, now: StoreTime) {
        let mut left = SERVED;
        while left > 0
            && let Some(lease) = self.leases.queue.due(now)
        {
            self.serve_lease(&lease, &mut left, now);
        }
    }

    /// Grants a lease to its first living waiters, as far as places are free, and notes when the next one may be.
    pub(super) fn serve_lease(&mut self, lease: &LeaseName, left: &mut usize, now: StoreTime) {
        self.refresh_lease(lease, now);
        while *left > 0 {
            let Some(waiter) = self.leases.queue.of(lease).next().cloned() else {
                return;
            };
            *left -= 1;
            self.end_if_past(&waiter.tenure, now);
            if now >= waiter.until || self.current(&waiter.tenure).is_none() {
                self.leases.queue.leave(lease, &waiter.tenure);
                continue;
            }
            if let Some(unsettled) = self.unsettled_now(now) {
                self.leases.queue.set_wake(lease, Some(unsettled.until));
                return;
            }
            let places = self.places_of(lease, self.head().resumed_at, now);
            let place = places.place_for(waiter.tenure.member(), waiter.holders);
            // After a step back of the clock an older waiter may have returned, with another number of holders.
            let is_same = places.holders().is_none_or(|holders| holders == waiter.holders);
            let Some((place, _)) = place.filter(|_| is_same) else {
                let free_in = places.free_in().unwrap_or_default();
                self.leases.queue.set_wake(lease, Some(now + free_in));
                return;
            };
            if !self.grant_waiter(waiter, &(lease.clone(), place), places.generation(), now) {
                return;
            }
        }
        self.leases.queue.wake(lease, StoreTime::ZERO);
    }

    /// Grants a lease that was handed off to a member that waits for it. Otherwise it stays reserved.
    pub(super) fn serve_successor(&mut self, key: &PlaceKey, successor: &MemberId, now: StoreTime) {
        let tenure = self
            .lives
            .get(successor)
            .map(|live| TenureId::new(successor.clone(), live.term));
        let waiter = tenure.and_then(|tenure| self.leases.queue.find(&key.0, &tenure).cloned());
        let (reserved, resumed_at) = (self.leases.reserved.get(key), self.head().resumed_at);
        let (holders, running) = (reserved.map(|row| row.holders), reserved.map(|row| row.generation));
        let Some(waiter) =
            waiter.filter(|waiter| Some(waiter.holders) == holders && self.is_waiting(waiter, resumed_at, now))
        else {
            return;
        };
        if self.unsettled_now(now).is_none() {
            self.grant_waiter(waiter, key, running, now);
        }
    }

    /// Grants a place to a waiter. Notes the revisions around the grant, and the end of the wait for its process.
    fn grant_waiter(&mut self, waiter: Waiter, key: &PlaceKey, running: Option<Token>, now: StoreTime) -> bool {
        let before = self.revision_of(&waiter.tenure);
        if self.grant(Grant::of(&waiter, key.clone(), running), now).is_err() {
            return false;
        }
        let after = self.revision_of(&waiter.tenure);
        self.leases.queue.note_granted(&waiter.tenure, before, after);
        self.note_served(&key.0, waiter, false, now);
        true
    }

    /// Records the end of a wait for its process.
    pub(super) fn note_served(&mut self, lease: &LeaseName, waiter: Waiter, replaced: bool, now: StoreTime) {
        let (step, lease) = (self.lives.table.step(), lease.clone());
        let served = Served {
            lease,
            waiter,
            replaced,
            at: now,
        };
        self.leases.queue.note_served(step, served);
    }

    /// Notes that the leases of a tenure, and those handed off to its member, may be free earlier than known: it ended, or
    /// has a shorter ttl.
    pub(in crate::memory) fn wake_leases_of(&mut self, tenure: &TenureId) {
        if self.leases.queue.is_empty() {
            return;
        }
        let reserved = self
            .leases
            .reserved
            .iter()
            .filter(|(_, row)| row.member == *tenure.member());
        let reserved: Vec<LeaseName> = reserved.map(|((lease, _), _)| lease.clone()).collect();
        for lease in reserved {
            self.leases.queue.wake(&lease, StoreTime::ZERO);
        }
        let held = self.held.of(tenure).leases;
        if held == 0 {
            return;
        }
        let leases: Vec<LeaseName> =
            match usize::try_from(held).is_ok_and(|held| held <= self.leases.queue.leases().len()) {
                true => self.held.leases(tenure, None).cloned().collect(),
                false => {
                    let awaited = self.leases.queue.leases();
                    let held = awaited.filter(|lease| self.held.place_of(tenure, lease).is_some());
                    held.cloned().collect()
                }
            };
        for lease in leases {
            self.leases.queue.wake(&lease, StoreTime::ZERO);
        }
    }

    /// Whether waiters were served whose process has not fetched that.
    pub(crate) fn has_turns(&self) -> bool {
        self.leases.queue.has_served()
    }

    /// Takes the served waiters of a process.
    pub(crate) fn take_turns(&mut self, group: &Group, node: &NodeId) -> Vec<WaitingTurn> {
        let served = self.leases.queue.take_served(node).into_iter();
        let turns = served.map(|served| WaitingTurn {
            group: group.clone(),
            lease: served.lease,
            tenure: served.waiter.tenure,
            request: served.waiter.request,
            replaced: served.replaced,
        });
        turns.collect()
    }
}

#[cfg(test)]
impl GroupModel {
    /// The number of the waiting request of a tenure.
    pub(in crate::memory) fn leases_waiting(
        &self,
        lease: &LeaseName,
        tenure: &TenureId,
    ) -> Option<crate::lease::RequestId> {
        self.leases.queue.find(lease, tenure).map(|waiter| waiter.request)
    }
}
