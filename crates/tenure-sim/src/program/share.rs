//! The part of a program that shares leases, waits for leases, and acts as an operator on them.

use std::sync::{Arc, Weak};

use tenure::{Acquire, AcquireOptions, Holders, LeaseName, Membership, Result};
use tenure_core::lease::RevokeOf;
use tenure_core::store::Call;

use super::{LEASES, MS, Program, View, lock};

/// The names of the leases that have [`PLACES`] holders.
pub const SHARED: [&str; 2] = ["s0", "s1"];
/// The number of holders of a shared lease.
pub const PLACES: u16 = 3;

/// The number of places of a lease.
#[must_use]
pub fn places_of(lease: &LeaseName) -> u16 {
    if SHARED.contains(&lease.as_str()) { PLACES } else { 1 }
}

impl Program {
    /// Performs one act on shared leases, or waits for a lease.
    pub(super) async fn share(&mut self, membership: &Arc<Membership>) {
        self.drop_lost_guards();
        let shared = self.chance.pick(&SHARED).copied().unwrap_or_default();
        if self.view.is_calm() {
            return self.take_place(membership, shared).await;
        }
        match self.chance.below(100) {
            0..15 => self.take_place(membership, shared).await,
            15..30 => self.wait_for(membership, shared),
            30..38 => {
                let name = self.any_lease();
                self.wait_for(membership, name);
            }
            38..41 => self.revoke_any(membership).await,
            41..44 => self.stop_waiting(),
            44..50 => self.write().await,
            50..53 => self.give_up(membership).await,
            _ => {}
        }
    }

    /// Any lease; without the targets of the fleet, which nobody may wait for.
    fn any_lease(&mut self) -> &'static str {
        let exclusive = self.chance.pick(&LEASES).copied();
        let shared = self.chance.pick(&SHARED).copied();
        let name = if self.habits.fleet {
            shared
        } else {
            exclusive.or(shared)
        };
        name.unwrap_or_default()
    }

    /// Takes a place of a shared lease if one is free.
    async fn take_place(&mut self, membership: &Arc<Membership>, name: &str) {
        if lock(&self.view.guards).contains_key(name) || lock(&self.view.waits).contains_key(name) {
            return;
        }
        let acquired = membership.leases().acquire_with(name, options(name)).await;
        self.view.acquired(name, &Arc::downgrade(membership), acquired);
    }

    /// Waits for a lease in the background, one at a time: tokio wakes several tasks that watch the same value in an order
    /// that no seed determines.
    fn wait_for(&mut self, membership: &Arc<Membership>, name: &'static str) {
        let wait = self.chance.duration(MS * 100, MS * 8_000);
        let mut waits = lock(&self.view.waits);
        if lock(&self.view.guards).contains_key(name) || !waits.is_empty() {
            return;
        }
        let (leases, of, view) = (membership.leases(), Arc::downgrade(membership), Arc::clone(&self.view));
        let task = tokio::spawn(async move {
            let options = AcquireOptions { wait, ..options(name) };
            let acquired = leases.acquire_with(name, options).await;
            lock(&view.waits).remove(name);
            view.acquired(name, &of, acquired);
        });
        waits.insert(name, task.abort_handle());
    }

    /// Drops a waiting call, as a client does that closes its connection.
    fn stop_waiting(&mut self) {
        let names: Vec<&str> = lock(&self.view.waits).keys().copied().collect();
        let task = self
            .chance
            .pick(&names)
            .and_then(|name| lock(&self.view.waits).remove(name));
        if let Some(task) = task {
            task.abort();
        }
    }

    /// An operator releases a grant of anybody.
    async fn revoke_any(&mut self, membership: &Arc<Membership>) {
        let name = self.any_lease();
        let Ok(Some(lease)) = membership.leases().look_up(name).await else {
            return;
        };
        if let Some(holder) = self.chance.pick(&lease.holders) {
            let (store, of) = (self.tenure.store(), RevokeOf::Token(holder.token));
            let revoked = store.revoke_lease(membership.group(), &lease.lease, of, Call::default());
            drop(revoked.await);
        }
    }
}

impl View {
    /// Takes the guard of a grant, if the membership that asked for it is still the one in use.
    fn acquired(&self, name: &str, by: &Weak<Membership>, acquired: Result<Acquire>) {
        let Ok(Acquire::Granted(guard)) = acquired else { return };
        let current = self.membership().map(|membership| Arc::downgrade(&membership));
        if current.is_some_and(|current| current.ptr_eq(by)) {
            lock(&self.guards).insert(name.to_owned(), guard);
        }
    }
}

fn options(name: &str) -> AcquireOptions {
    let places = if SHARED.contains(&name) { PLACES } else { 1 };
    AcquireOptions {
        holders: Holders::new(places).unwrap_or(Holders::ONE),
        ..AcquireOptions::default()
    }
}
