//! The part of a program that works under leases.

use std::sync::Arc;

use tenure::{Acquire, LeaseName, Membership, PageRequest, Verdict};

use super::{MS, Program, lock};
use crate::sink::Write;

/// The names of all leases.
pub const LEASES: [&str; 6] = ["t0", "t1", "t2", "t3", "t4", "t5"];

impl Program {
    /// Acquires, uses and releases leases without the fleet.
    pub(super) async fn take_leases(&mut self, membership: &Arc<Membership>) {
        self.drop_lost_guards();
        if self.view.is_calm() {
            return self.acquire(membership).await;
        }
        match self.chance.below(100) {
            0..25 => self.acquire(membership).await,
            25..30 => self.acquire_all(membership).await,
            30..55 => self.write().await,
            55..62 => self.give_up(membership).await,
            _ => {}
        }
    }

    /// Drops the guards of lost leases.
    pub(super) fn drop_lost_guards(&self) {
        lock(&self.view.guards).retain(|_, guard| guard.verdict() != Verdict::Lost);
    }

    /// Acquires one lease that it does not hold.
    async fn acquire(&mut self, membership: &Arc<Membership>) {
        let Some(name) = self.chance.pick(&LEASES).copied() else {
            return;
        };
        if lock(&self.view.guards).contains_key(name) {
            return;
        }
        if let Ok(Acquire::Granted(guard)) = membership.leases().acquire(name).await {
            lock(&self.view.guards).insert(name.to_owned(), guard);
        }
    }

    /// Acquires all of them.
    async fn acquire_all(&mut self, membership: &Arc<Membership>) {
        let names: Vec<LeaseName> = LEASES.iter().filter_map(|name| LeaseName::new(name).ok()).collect();
        let Ok(outcomes) = membership.leases().acquire_many(&names).await else {
            return;
        };
        let granted = outcomes.into_iter().filter_map(Acquire::granted);
        lock(&self.view.guards).extend(granted.map(|guard| (guard.lease().to_string(), guard)));
    }

    /// Works under one lease: reads the verdict, and writes some time later. Fencing covers what happens in between.
    pub(super) async fn write(&mut self) {
        let held: Vec<_> = lock(&self.view.guards)
            .values()
            .filter(|guard| guard.verdict() == Verdict::Held)
            .map(Write::under)
            .collect();
        let Some(write) = self.chance.pick(&held).cloned() else {
            return;
        };
        self.rest(MS, MS * 400).await;
        let trusted = lock(&self.view.guards)
            .get(write.lease.as_str())
            .is_some_and(|guard| guard.token() == write.token && guard.verdict() == Verdict::Held);
        self.sink.write(&write, trusted);
    }

    /// Releases one lease, or hands it off.
    pub(super) async fn give_up(&mut self, membership: &Arc<Membership>) {
        let held: Vec<String> = lock(&self.view.guards).keys().cloned().collect();
        let Some(name) = self.chance.pick(&held) else { return };
        let Some(guard) = lock(&self.view.guards).remove(name) else {
            return;
        };
        if self.chance.happens(400) {
            drop(guard.release().await);
            return;
        }
        let members = self.members(membership).await;
        match self.chance.pick(&members) {
            Some(heir) => drop(guard.hand_off(heir).await),
            // Dropping the guard also releases the lease, in the background.
            None => drop(guard),
        }
    }

    async fn members(&self, membership: &Arc<Membership>) -> Vec<tenure::MemberId> {
        let Ok(group) = self.tenure.group(membership.group().as_str()) else {
            return Vec::new();
        };
        let page = group.members(&PageRequest::default()).await;
        page.map(|page| page.items.into_iter().map(|member| member.member).collect())
            .unwrap_or_default()
    }
}
