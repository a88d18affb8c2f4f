//! The waiters for leases, which live as long as the process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{LeaseName, NodeId, TenureId};
use crate::lease::{Holders, MAX_WAIT, RequestId};
use crate::membership::Revision;
use crate::time::StoreTime;

/// A place in the queue of a lease.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    /// Its number in the group's sequence: first come, first served.
    pub(super) number: u64,
    pub(super) tenure: TenureId,
    pub(super) request: RequestId,
    pub(super) holders: Holders,
    pub(super) node: NodeId,
    /// The end of the wait.
    pub(super) until: StoreTime,
}

/// The result of a wait, for the process that has the request's connection: it was granted, or a later request replaced
/// it.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) lease: LeaseName,
    pub(super) waiter: Waiter,
    pub(super) replaced: bool,
    pub(super) at: StoreTime,
}

/// All queues of a group.
#[derive(Debug, Default)]
pub(in crate::memory) struct QueueModel {
    waiters: BTreeMap<(LeaseName, u64), Waiter>,
    numbers: BTreeMap<(LeaseName, TenureId), u64>,
    /// The numbers of the waiters of each lease, in order, so that the place of one is found without a walk.
    order: BTreeMap<LeaseName, VecDeque<u64>>,
    by_end: BTreeSet<(StoreTime, LeaseName, u64)>,
    /// The earliest time at which each lease with waiters may be free. Lazy: a step that looks finds the true time.
    wakes: BTreeMap<LeaseName, StoreTime>,
    by_wake: BTreeSet<(StoreTime, LeaseName)>,
    /// Served by steps that are not durable, with their numbers.
    undurable: VecDeque<(u64, Served)>,
    /// Served, and not fetched yet.
    served: VecDeque<Served>,
    /// The revision before the newest change of a tenure's holdings, and after it, if that was a grant to its waiter.
    granted: BTreeMap<TenureId, (Revision, Revision)>,
}

impl QueueModel {
    pub(in crate::memory) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number of waiters of the group, and of a lease.
    pub(super) fn counts(&self, lease: &LeaseName) -> (usize, usize) {
        (self.waiters.len(), self.order.get(lease).map_or(0, VecDeque::len))
    }

    /// The number of waiters of a lease before this number.
    pub(super) fn ahead(&self, lease: &LeaseName, number: u64) -> usize {
        let numbers = self.order.get(lease);
        numbers.map_or(0, |numbers| numbers.partition_point(|other| *other < number))
    }

    pub(super) fn has(&self, lease: &LeaseName) -> bool {
        !self.order.is_empty() && self.order.contains_key(lease)
    }

    /// The leases with waiters.
    pub(in crate::memory) fn leases(&self) -> impl ExactSizeIterator<Item = &LeaseName> {
        self.order.keys()
    }

    /// The waiters of a lease, in order.
    pub(super) fn of<'a>(&'a self, lease: &LeaseName) -> impl Iterator<Item = &'a Waiter> {
        let all = (lease.clone(), 0)..=(lease.clone(), u64::MAX);
        self.waiters.range(all).map(|(_, waiter)| waiter)
    }

    pub(super) fn find(&self, lease: &LeaseName, tenure: &TenureId) -> Option<&Waiter> {
        let number = self.numbers.get(&(lease.clone(), tenure.clone()))?;
        self.waiters.get(&(lease.clone(), *number))
    }

    /// Adds a waiter. One with the same number is replaced.
    pub(super) fn put(&mut self, lease: &LeaseName, waiter: Waiter) {
        let key = (lease.clone(), waiter.number);
        self.numbers
            .insert((lease.clone(), waiter.tenure.clone()), waiter.number);
        self.by_end.insert((waiter.until, lease.clone(), waiter.number));
        let (until, number) = (waiter.until, waiter.number);
        match self.waiters.insert(key, waiter) {
            Some(before) if before.until != until => {
                self.by_end.remove(&(before.until, lease.clone(), before.number));
            }
            Some(_) => {}
            None => {
                let place = self.ahead(lease, number);
                self.order.entry(lease.clone()).or_default().insert(place, number);
            }
        }
    }

    /// Removes the waiter of a tenure.
    pub(super) fn leave(&mut self, lease: &LeaseName, tenure: &TenureId) -> Option<Waiter> {
        if self.waiters.is_empty() {
            return None;
        }
        let number = self.numbers.remove(&(lease.clone(), tenure.clone()))?;
        let waiter = self.waiters.remove(&(lease.clone(), number))?;
        self.by_end.remove(&(waiter.until, lease.clone(), number));
        let place = self.ahead(lease, number);
        if let Some(numbers) = self.order.get_mut(lease) {
            numbers.remove(place);
            if numbers.is_empty() {
                self.order.remove(lease);
                self.set_wake(lease, None);
            }
        }
        Some(waiter)
    }

    /// Removes waiters whose wait is over.
    pub(in crate::memory) fn forget_over(&mut self, limit: u32, now: StoreTime) {
        for _ in 0..limit {
            let Some((until, lease, number)) = self.by_end.first().cloned() else {
                return;
            };
            if until > now {
                return;
            }
            match self
                .waiters
                .get(&(lease.clone(), number))
                .map(|waiter| waiter.tenure.clone())
            {
                Some(tenure) => drop(self.leave(&lease, &tenure)),
                None => drop(self.by_end.pop_first()),
            }
        }
    }

    /// Notes that a lease may be free at this time, unless an earlier one is noted. Nothing without waiters.
    pub(super) fn wake(&mut self, lease: &LeaseName, at: StoreTime) {
        let is_earlier = self.wakes.get(lease).is_none_or(|known| at < *known);
        if is_earlier && self.has(lease) {
            self.set_wake(lease, Some(at));
        }
    }

    /// Notes that any lease may be free.
    pub(in crate::memory) fn wake_all(&mut self) {
        let leases: Vec<LeaseName> = self.order.keys().cloned().collect();
        for lease in leases {
            self.set_wake(&lease, Some(StoreTime::ZERO));
        }
    }

    pub(super) fn set_wake(&mut self, lease: &LeaseName, at: Option<StoreTime>) {
        let before = match at {
            Some(at) => self.wakes.insert(lease.clone(), at),
            None => self.wakes.remove(lease),
        };
        if let Some(before) = before {
            self.by_wake.remove(&(before, lease.clone()));
        }
        if let Some(at) = at {
            self.by_wake.insert((at, lease.clone()));
        }
    }

    /// The earliest time at which a lease with waiters may be free.
    pub(in crate::memory) fn next_wake(&self) -> Option<StoreTime> {
        self.by_wake.first().map(|(at, _)| *at)
    }

    /// The next lease that may be free by now.
    pub(super) fn due(&self, now: StoreTime) -> Option<LeaseName> {
        let (at, lease) = self.by_wake.first()?;
        (*at <= now).then(|| lease.clone())
    }

    /// Records that a waiter was served, by a step with this number; zero if steps are not stored.
    pub(super) fn note_served(&mut self, step: u64, served: Served) {
        match step {
            0 => self.push_served(served),
            step => self.undurable.push_back((step, served)),
        }
    }

    /// All steps up to this one are durable.
    pub(in crate::memory) fn durable(&mut self, step: u64) {
        while let Some((_, served)) = self.undurable.pop_front_if(|(served, _)| *served <= step) {
            self.push_served(served);
        }
    }

    /// No node fetches a result after the longest wait.
    fn push_served(&mut self, served: Served) {
        let oldest = served.at.minus(MAX_WAIT);
        while self.served.pop_front_if(|other| other.at < oldest).is_some() {}
        self.served.push_back(served);
    }

    /// Puts the waiters back that undurable steps served.
    pub(in crate::memory) fn put_back(&mut self) {
        let undone = std::mem::take(&mut self.undurable).into_iter();
        for Served { lease, waiter, .. } in undone.map(|(_, served)| served).filter(|served| !served.replaced) {
            if !self.numbers.contains_key(&(lease.clone(), waiter.tenure.clone())) {
                self.put(&lease, waiter);
            }
        }
        self.wake_all();
    }

    /// Notes the newest change of a tenure's holdings, a grant to its waiter.
    pub(super) fn note_granted(&mut self, tenure: &TenureId, before: Revision, after: Revision) {
        self.granted.insert(tenure.clone(), (before, after));
    }

    /// The tenure has ended.
    pub(in crate::memory) fn forget_granted(&mut self, tenure: &TenureId) {
        self.granted.remove(tenure);
    }

    /// The revision before the newest change of a tenure's holdings, if that was a grant to its waiter.
    pub(super) fn before_grant(&self, tenure: &TenureId, revision: Revision) -> Option<Revision> {
        let (before, after) = self.granted.get(tenure)?;
        (*after == revision).then_some(*before)
    }

    /// Whether there are results to fetch.
    pub(in crate::memory) fn has_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// Takes the results of a node.
    pub(super) fn take_served(&mut self, node: &NodeId) -> Vec<Served> {
        let all = std::mem::take(&mut self.served).into_iter();
        let (of_node, others): (VecDeque<_>, _) = all.partition(|served| served.waiter.node == *node);
        self.served = others;
        Vec::from(of_node)
    }
}
