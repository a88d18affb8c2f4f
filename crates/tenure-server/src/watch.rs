//! What was seen of the store last, so that status and metrics answer while it is away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, Turn};
use tenure::wire::{GroupState, Watched, ms};
use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{Group, RegistryName};
use tenure_core::time::StoreTime;

use crate::app::App;
use crate::meters;

/// How often the store's clock is asked for.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// How often the groups are looked at.
const GROUPS_EVERY: Duration = Duration::from_secs(5);
/// The most groups that are looked at.
pub(crate) const MAX_GROUPS: usize = 1_000;
/// The group that `/readyz` ticks to see that the store takes writes. It has no members and shows up nowhere.
pub(crate) const PROBE_GROUP: &str = "tenure.readyz";
/// How long the answer to that is everybody's: `/readyz` is open to strangers, and must not make the store write at will.
const PROBE_FRESH: Duration = Duration::from_secs(1);
/// After how many groups in a row that cannot be reached a look is given up.
const AWAY_IN_A_ROW: u32 = 8;
/// The most registries of a group that are remembered.
const MAX_REGISTRIES: usize = 100;

/// The last sight of the groups, and of how the loops turn.
#[derive(Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// Held by whoever looks: a store that is slow must not be asked by everyone at once.
    looking: tokio::sync::Mutex<()>,
    turns: Mutex<BTreeMap<String, (u64, Mono)>>,
    registries: Mutex<BTreeMap<Group, BTreeSet<RegistryName>>>,
    /// What the store said when it was last asked whether it takes writes. Held by whoever asks; the others wait for it.
    probed: Arc<tokio::sync::Mutex<Option<Probed>>>,
}

struct Probed {
    at: Mono,
    answer: Result<(), String>,
}

#[derive(Default)]
struct Seen {
    groups: BTreeMap<Group, (GroupState, Mono)>,
    total: u64,
    listed_at: Option<Mono>,
}

impl Watch {
    /// The groups as they were seen last, with how long ago; how many there are; and when they were listed.
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

    /// How long each loop has not finished a turn.
    pub(crate) fn stuck_for(&self, name: &str, runs: u64, now: Mono) -> Duration {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = turns.entry(name.to_owned()).or_insert((runs, now));
        if seen.0 != runs {
            *seen = (runs, now);
        }
        now.since(seen.1)
    }

    /// Remembers that a group has such a registry: a store cannot be asked which there are.
    pub(crate) fn heard_of(&self, group: &Group, registry: &RegistryName) {
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

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Looks at the groups again, unless that was done within `max_age` or somebody does it now. What cannot be read
    /// keeps its last state. Answers how many could not.
    pub(crate) async fn look(&self, max_age: Duration) -> Result<u64> {
        let Ok(_only_one) = self.watch.looking.try_lock() else {
            return Ok(0);
        };
        let now = self.clock.mono();
        if self.watch.seen().listed_at.is_some_and(|at| now.since(at) < max_age) {
            return Ok(0);
        }
        let groups = self.groups().await?;
        let (total, mut skipped) = (groups.len() as u64, 0);
        let listed: Vec<_> = groups.into_iter().take(MAX_GROUPS).collect();
        {
            let mut seen = self.watch.seen();
            let gone = |group: &Group| listed.binary_search(group).is_err();
            seen.groups.retain(|group, _| {
                let gone = gone(group);
                if gone {
                    meters::holdings(group, 0, 0);
                }
                !gone
            });
            (seen.total, seen.listed_at) = (total, Some(now));
            self.watch.registries().retain(|group, _| !gone(group));
        }
        let mut away = 0;
        for group in listed {
            match self.read(self.store.status(&group)).await {
                Ok(status) => {
                    away = 0;
                    self.learn(status.as_of);
                    let state = GroupState::new(group.clone(), &status);
                    meters::holdings(&group, status.leases, status.sessions);
                    self.watch.seen().groups.insert(group, (state, self.clock.mono()));
                }
                // One node of many may be away; but nobody waits for each of a thousand groups that cannot be reached.
                Err(error) if error.is_unavailable() && away == AWAY_IN_A_ROW => return Err(error),
                Err(error) => {
                    skipped += 1;
                    away += u32::from(error.is_unavailable());
                }
            }
        }
        Ok(skipped)
    }

    /// Whether the store answers and takes writes, as of the last second. However many ask, it is asked once.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<(), String> {
        let mut probed = Arc::clone(&self.watch.probed).lock_owned().await;
        if let Some(known) = &*probed
            && self.clock.mono().since(known.at) < PROBE_FRESH
        {
            return known.answer.clone();
        }
        let app = Arc::clone(self);
        // In a task of its own: whoever hangs up must not make the next one ask anew.
        let asked = tokio::spawn(async move {
            let answer = match app.ask_for_a_write().await {
                Ok(as_of) => {
                    app.learn(as_of);
                    Ok(())
                }
                Err(error) => Err(error.chain()),
            };
            let at = app.clock.mono();
            probed.insert(Probed { at, answer }).answer.clone()
        });
        asked.await.unwrap_or_else(|_| Err("asking it panicked".to_owned()))
    }

    async fn ask_for_a_write(&self) -> Result<StoreTime> {
        let group = Group::new(PROBE_GROUP)?;
        match self.store.steps() {
            Some(steps) => self.write(steps.tick(&group)).await.map(|status| status.as_of),
            None => self.read(self.store.now()).await,
        }
    }

    /// The groups that there are, in order, without our own probe.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = self.read(self.store.groups()).await?;
        groups.retain(|group| group.as_str() != PROBE_GROUP);
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }
}

/// The loop that keeps looking. It holds the app weakly: the supervisor outlives a server, and must not keep it.
pub(crate) struct Watcher(pub(crate) Weak<App>);

#[async_trait]
impl LoopBody for Watcher {
    async fn turn(&mut self) -> Result<Turn> {
        let Some(app) = self.0.upgrade() else {
            return Ok(Turn::idle());
        };
        let now = app.read(app.store.now()).await?;
        app.learn(now);
        let skipped = app.look(GROUPS_EVERY).await?;
        Ok(Turn { next: None, skipped })
    }
}
