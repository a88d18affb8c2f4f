//! A cache of the state of the store, so that status and metrics answer while the store is down.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tenure::loops::{LoopBody, Turn};
use tenure::sweeper::Sweeper;
use tenure::wire::{GroupState, Watched, ms};
use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{Group, RegistryName};
use tenure_core::store::{Probed, is_probe};
use tenure_core::timeout::Timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::app::App;
use crate::meters::{self, Recorded};

/// How often the store's clock is read.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// How often the state of the groups is read.
const GROUPS_EVERY: Duration = Duration::from_secs(5);
/// How many groups are read concurrently.
const AT_ONCE: usize = 8;
/// The most groups that are read, and named in status and metrics.
pub(crate) const MAX_GROUPS: usize = 1_000;
/// How long the result of a write probe is cached: `/readyz` needs no token, and must not cause writes at the rate of its
/// callers.
const PROBE_FRESH: Duration = Duration::from_secs(1);
/// The most registries that are remembered per group.
const MAX_REGISTRIES: usize = 100;

/// The cached state of the store.
#[derive(Default)]
pub(crate) struct Watch {
    seen: Mutex<GroupStates>,
    /// Held during a read of all groups: a slow store must not get one per caller.
    looking: tokio::sync::Mutex<()>,
    registries: Mutex<BTreeMap<Group, BTreeSet<RegistryName>>>,
    /// The last write probe. Locked during a probe; concurrent callers wait for its result.
    probed: Arc<tokio::sync::Mutex<Option<ProbeResult>>>,
}

struct ProbeResult {
    at: Mono,
    answer: Result<Vec<String>, String>,
}

#[derive(Default)]
struct GroupStates {
    groups: BTreeMap<Group, (GroupState, Mono)>,
    total: u64,
    listed_at: Option<Mono>,
}

impl Watch {
    /// The cached groups with their ages; the number of all groups; the age of that listing.
    pub(crate) fn groups(&self, now: Mono) -> (Vec<Watched>, u64, Option<Duration>) {
        let (seen, registries) = (self.seen(), self.registries());
        let groups = seen.groups.values();
        let watched = groups
            .map(|(state, at)| Watched {
                state: state.clone(),
                age_ms: ms(now.since(*at)),
                registries: registries.get(&state.group).into_iter().flatten().cloned().collect(),
            })
            .collect();
        (watched, seen.total, seen.listed_at.map(|at| now.since(at)))
    }

    /// Remembers a registry of a group: a store cannot list them.
    pub(crate) fn remember_registry(&self, group: &Group, registry: &RegistryName) {
        let mut all = self.registries();
        if !all.contains_key(group) && all.len() >= MAX_GROUPS {
            return;
        }
        let of_group = all.entry(group.clone()).or_default();
        if of_group.len() < MAX_REGISTRIES && !of_group.contains(registry) {
            of_group.insert(registry.clone());
        }
    }

    fn registries(&self) -> MutexGuard<'_, BTreeMap<Group, BTreeSet<RegistryName>>> {
        self.registries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, GroupStates> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Reads all groups again, unless that was done within `max_age` or is in progress. A group that cannot be read keeps its
    /// cached state. Returns how many failed.
    pub(crate) async fn look(&self, max_age: Duration) -> Result<u64> {
        let Ok(_only_one) = self.watch.looking.try_lock() else {
            return Ok(0);
        };
        let now = self.clock.mono();
        if self.watch.seen().listed_at.is_some_and(|at| now.since(at) < max_age) {
            return Ok(0);
        }
        let recorder = meters::recorder();
        let listing = recorder.map_or(0, Recorded::begin_listing);
        let groups = self.groups().await?;
        let total = groups.len() as u64;
        let (listed, other_members) = self.largest(groups);
        meters::groups(total, other_members);
        {
            let mut seen = self.watch.seen();
            let gone = |group: &Group| listed.binary_search(group).is_err();
            seen.groups.retain(|group, _| {
                let gone = gone(group);
                // A recorder of the embedding program drops no series.
                if gone && recorder.is_none() {
                    meters::holdings(group, 0, 0);
                }
                !gone
            });
            (seen.total, seen.listed_at) = (total, Some(now));
            self.watch.registries().retain(|group, _| !gone(group));
        }
        if let Some(recorder) = recorder {
            recorder.keep_groups(&listed, listing);
        }
        let (mut first, mut failed, looked_at) = (None, 0, listed.len());
        let mut looks = stream::iter(listed)
            .map(|group| self.look_at(group))
            .buffer_unordered(AT_ONCE);
        while let Some(looked) = looks.next().await {
            if let Err(error) = looked {
                failed += 1;
                first.get_or_insert(error);
            }
        }
        match first {
            Some(error) if failed == looked_at => Err(error),
            _ => Ok(failed as u64),
        }
    }

    /// The groups that are named, by name: those with most members, as of the last visit; among equals those that were
    /// named before. And the members of the others.
    fn largest(&self, mut groups: Vec<Group>) -> (Vec<Group>, u64) {
        if groups.len() <= MAX_GROUPS {
            return (groups, 0);
        }
        let members = self.sweeper.as_ref().map(Sweeper::members).unwrap_or_default();
        let of = |group: &Group| members.get(group).copied().unwrap_or(0);
        let seen = self.watch.seen();
        groups.sort_by_cached_key(|group| (Reverse(of(group)), !seen.groups.contains_key(group), group.clone()));
        drop(seen);
        let others = groups.split_off(MAX_GROUPS).iter().map(of).sum();
        groups.sort();
        (groups, others)
    }

    async fn look_at(&self, group: Group) -> Result<()> {
        let status = self.read(self.store.status(&group));
        let status = self.timed(status, |status| status.as_of).await?;
        meters::holdings(&group, status.leases, status.sessions);
        // No visit comes to a group in which nothing is due.
        let cause = status.unsettled.map(|grace| grace.cause);
        tenure::meters::group(&group, status.members, cause, status.brake.is_some());
        let state = GroupState::new(group.clone(), status);
        self.watch.seen().groups.insert(group, (state, self.clock.mono()));
        Ok(())
    }

    /// Whether the store accepts writes, as of the last second. Concurrent callers share one probe. Returns descriptions of
    /// the nodes that do not.
    ///
    /// # Errors
    /// Why no node accepts writes.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<Vec<String>, String> {
        let mut probed = Arc::clone(&self.watch.probed).lock_owned().await;
        if let Some(known) = &*probed
            && self.clock.mono().since(known.at) < PROBE_FRESH
        {
            return known.answer.clone();
        }
        let app = Arc::clone(self);
        // In a task of its own: a caller that disconnects must not make the next one probe again.
        let asked = tokio::spawn(async move {
            let asked = app.timed(app.ask_for_a_write(), |probed| probed.as_of).await;
            let answer = asked.map(|probed| probed.away).map_err(|error| error.chain());
            let at = app.clock.mono();
            probed.insert(ProbeResult { at, answer }).answer.clone()
        });
        asked.await.unwrap_or_else(|_| Err("the probe panicked".to_owned()))
    }

    /// Waits a little longer than for each node of the store.
    async fn ask_for_a_write(&self) -> Result<Probed> {
        let patience = self.settings.request_timeout;
        let bound = Timeout::change(patience.mul_f64(1.5));
        bound.call(&*self.clock, "the store", self.store.probe(patience)).await
    }

    /// The groups of the store, sorted, without the probe group.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = self.read(self.store.groups()).await?;
        groups.retain(|group| !is_probe(group));
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }
}

/// The loop that refreshes the cache. It holds the app weakly: the loops outlive a server, and must not keep it alive.
pub(crate) struct Watcher {
    app: Weak<App>,
    /// The read in progress. It may outlive a turn, so that slow groups delay nothing else.
    look: Option<AbortOnDropHandle<Result<u64>>>,
}

impl Watcher {
    pub(crate) fn new(app: Weak<App>) -> Self {
        Self { app, look: None }
    }
}

#[async_trait]
impl LoopBody for Watcher {
    async fn turn(&mut self) -> Result<Turn> {
        let Some(app) = self.app.upgrade() else {
            return Ok(Turn::idle());
        };
        app.crowd.flush(app.clock.mono());
        app.now().await?;
        let looked = match self.look.take_if(|look| look.is_finished()) {
            Some(look) => look.await,
            None => Ok(Ok(0)),
        };
        if self.look.is_none() {
            let look = tokio::spawn(async move { app.look(GROUPS_EVERY).await });
            self.look = Some(AbortOnDropHandle::new(look));
        }
        let skipped = match looked {
            Ok(looked) => looked?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => 0,
            },
        };
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}
