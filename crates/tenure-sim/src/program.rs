//! The program in a node: an ordinary user of the library that claims, releases, leaves, and joins again.
//!
//! It uses only its store, its clock and its runtime.

mod fleet;
mod lease;
mod roster;
mod session;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure::{
    Assignment, ClaimMode, Clock, Connection, EndReason, EngagementId, Epoch, GroupHandle, JoinOptions, LeaseGuard,
    Membership, PageRequest, Registry, Result, SweepRequest, Tenure, Verdict,
};

use crate::chance::Chance;
use crate::sink::Sink;

pub use lease::LEASES;
pub use roster::{ROSTER, RosterPart};
pub use session::Held;
pub use share::{PLACES, SHARED, places_of};
use tokio::task::AbortHandle;

/// The registry that all programs claim in.
pub const REGISTRY: &str = "devices";
/// The number of keys they compete for.
const KEYS: u64 = 12;

const MS: Duration = Duration::from_millis(1);

/// The state of a program that the simulation can observe: what a program itself can read without I/O.
#[derive(Default)]
pub struct View {
    membership: Mutex<Option<Arc<Membership>>>,
    claims: Mutex<BTreeSet<String>>,
    guards: Mutex<BTreeMap<String, LeaseGuard>>,
    /// The leases that it waits for.
    waits: Mutex<BTreeMap<&'static str, AbortHandle>>,
    /// The connections that it has attached, by session and connection.
    connections: Mutex<BTreeMap<Held, Connection>>,
    /// The epochs of attaches that a later one of the same connection has replaced.
    earlier: Mutex<BTreeMap<Held, Epoch>>,
    /// The assignments of the fleet's tasks. Only the tasks hold them, so they end with them.
    assignments: Mutex<Vec<Weak<Assignment>>>,
    calm: AtomicBool,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("View")
    }
}

impl View {
    /// Its membership, if it has one.
    #[must_use]
    pub fn membership(&self) -> Option<Arc<Membership>> {
        lock(&self.membership).clone()
    }

    /// The keys that it has claimed, and neither released nor lost with notice.
    #[must_use]
    pub fn claims(&self) -> BTreeSet<String> {
        lock(&self.claims).clone()
    }

    /// Calls `look` on each of its guards.
    pub fn for_each_guard(&self, mut look: impl FnMut(&LeaseGuard)) {
        lock(&self.guards).values().for_each(&mut look);
        let assignments = lock(&self.assignments);
        let working = assignments.iter().filter_map(Weak::upgrade);
        working.for_each(|assignment| look(assignment.guard()));
    }

    fn work_on(&self, assignment: &Arc<Assignment>) {
        let mut assignments = lock(&self.assignments);
        assignments.retain(|known| known.strong_count() > 0);
        assignments.push(Arc::downgrade(assignment));
    }

    /// From now on it only stays alive and acquires free leases.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn set_membership(&self, membership: Option<Arc<Membership>>) {
        *lock(&self.membership) = membership;
        // Claims belong to a membership, so a new one starts without any.
        lock(&self.claims).clear();
        let waits = std::mem::take(&mut *lock(&self.waits));
        waits.values().for_each(AbortHandle::abort);
        drop(std::mem::take(&mut *lock(&self.guards)));
        drop(std::mem::take(&mut *lock(&self.connections)));
        lock(&self.earlier).clear();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The configuration of a program.
#[derive(Debug, Clone)]
pub struct ProgramConfig {
    /// The member id.
    pub name: String,
    /// The ttl.
    pub ttl: Duration,
    /// Whether it uses the library's fleet for its leases, or acquires them itself.
    pub fleet: bool,
    /// Whether it is a front-end, which attaches connections to sessions.
    pub sessions: bool,
}

/// A program.
pub struct Program {
    tenure: Tenure,
    clock: Arc<dyn Clock>,
    habits: ProgramConfig,
    view: Arc<View>,
    sink: Arc<Sink>,
    /// Its part in a roster, if it has one.
    roster: Option<RosterPart>,
    /// The engagements that it has asked for and not ended.
    engagements: Vec<EngagementId>,
    chance: Chance,
}

impl Program {
    /// Creates a program that has not started.
    #[must_use]
    pub fn new(
        tenure: Tenure,
        clock: Arc<dyn Clock>,
        habits: ProgramConfig,
        view: Arc<View>,
        sink: Arc<Sink>,
        chance: Chance,
    ) -> Self {
        Self {
            tenure,
            clock,
            habits,
            view,
            sink,
            roster: None,
            engagements: Vec::new(),
            chance,
        }
    }

    /// Gives it a part in a roster.
    #[must_use]
    pub fn with_roster(self, roster: Option<RosterPart>) -> Self {
        Self { roster, ..self }
    }

    /// Runs until its process ends.
    pub async fn run(mut self, group: String) {
        let Ok(group) = self.tenure.group(&group) else { return };
        loop {
            let options = JoinOptions {
                ttl: self.habits.ttl,
                ..JoinOptions::named(&self.habits.name).unwrap_or_default()
            };
            match group.join(options).await {
                Ok(membership) => {
                    let membership = Arc::new(membership);
                    self.view.set_membership(Some(Arc::clone(&membership)));
                    let end = self.work(&group, &membership).await;
                    self.view.set_membership(None);
                    // A supervisor restarts it after a while.
                    let most = if self.view.is_calm() { 500 } else { 4_000 };
                    self.rest(MS * if end.is_ok() { 200 } else { 50 }, MS * most).await;
                }
                Err(_) => self.rest(MS * 100, MS * 600).await,
            }
        }
    }

    /// Works under one membership until that ends.
    async fn work(&mut self, group: &GroupHandle, membership: &Arc<Membership>) -> Result<EndReason> {
        let registry = membership.registry(REGISTRY)?;
        let fleet = match self.habits.fleet {
            true => Some(self.start_fleet(membership)?),
            false => None,
        };
        loop {
            let wait = self.chance.duration(MS * 20, MS * 900);
            let sleep = self.clock.sleep(wait);
            tokio::select! {
                biased;
                end = membership.ended() => return end,
                lost = registry.lost_claims() => {
                    let mut claims = lock(&self.view.claims);
                    for claim in lost {
                        claims.remove(claim.key.as_str());
                    }
                    continue;
                }
                () = sleep => {}
            }
            match &fleet {
                Some(fleet) if self.view.is_calm() => fleet.undrain(),
                Some(fleet) => self.disturb_fleet(fleet),
                None => self.take_leases(membership).await,
            }
            self.share(membership).await;
            if self.habits.sessions {
                self.serve_clients(membership).await;
            }
            if let Some(part) = self.roster.clone() {
                self.work_in_roster(&part).await;
            }
            if self.view.is_calm() {
                continue;
            }
            // A supervisor restarts it: it leaves, and its holdings are released.
            if self.chance.happens(20) {
                self.view.set_membership(None);
                return match fleet {
                    Some(fleet) => self.leave_fleet(fleet, membership).await,
                    None => membership.leave().await,
                };
            }
            self.act(group, membership, &registry).await;
        }
    }

    /// Performs one random act. Errors are part of its life.
    async fn act(&mut self, group: &GroupHandle, membership: &Arc<Membership>, registry: &Registry) {
        let key = format!("k{}", self.chance.below(KEYS));
        let drawn = self.chance.below(100);
        match drawn {
            0..35 if membership.verdict() == Verdict::Held => self.claim(registry, key).await,
            35..50 if membership.verdict() == Verdict::Held => {
                let outcome = registry.claim_if_absent(&key).await;
                if outcome.is_ok_and(|outcome| outcome.as_str() != "held") {
                    lock(&self.view.claims).insert(key);
                }
            }
            50..55 => self.claim_many(registry).await,
            55..68 => {
                lock(&self.view.claims).remove(&key);
                drop(registry.release(&key).await);
            }
            68..82 => drop(registry.look_up(&key).await),
            82..86 => drop(registry.claims(None, &PageRequest::default()).await),
            86..90 => drop(group.members(&PageRequest::default()).await),
            90..93 => drop(group.sweep(&SweepRequest::default()).await),
            93..95 => self.expel(group).await,
            _ => {}
        }
    }

    async fn claim(&mut self, registry: &Registry, key: String) {
        if registry.claim(&key).await.is_ok() {
            lock(&self.view.claims).insert(key);
        }
    }

    async fn claim_many(&mut self, registry: &Registry) {
        let keys: Vec<String> = (0..3).map(|_| format!("k{}", self.chance.below(KEYS))).collect();
        if let Ok(outcomes) = registry.claim_many(&keys, ClaimMode::IfAbsent).await {
            let ours = keys.into_iter().zip(outcomes);
            let ours = ours.filter(|(_, outcome)| outcome.as_str() != "held");
            lock(&self.view.claims).extend(ours.map(|(key, _)| key));
        }
    }

    /// An operator expels a member, rarely.
    async fn expel(&mut self, group: &GroupHandle) {
        if let Ok(page) = group.members(&PageRequest::default()).await
            && let Some(member) = self.chance.pick(&page.items)
        {
            drop(group.expel(&member.tenure).await);
        }
    }

    async fn rest(&mut self, low: Duration, high: Duration) {
        let wait = self.chance.duration(low, high.max(low));
        self.clock.sleep(wait).await;
    }
}
