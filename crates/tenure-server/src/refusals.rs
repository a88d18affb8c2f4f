//! Reports refused beats to the store, whether the daemon was overloaded or could not accept connections, so that no member
//! ends because of it ([`Refusal`](tenure_core::refusal::Refusal)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, Turn};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Group, RosterName};
use tenure_core::membership::EndReason;
use tenure_core::roster::group_of;
use tenure_core::store::Call;
use tenure_core::sweep::BATCH;

use crate::app::App;
use crate::meters;
use crate::watch::MAX_GROUPS;

/// The name of the loop.
pub(crate) const REFUSALS: &str = "refusals";
/// Its longest interval; a refusal wakes it.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// How long one turn lasts: a slow store must not make it look stuck.
const SLICE: Duration = Duration::from_secs(2);
/// How often one group is reported to the store: half of the shortest ttl.
const AGAIN: Duration = Duration::from_millis(500);

/// The groups whose refused beats are not reported yet.
#[derive(Default)]
pub(crate) struct Refusals {
    noted: Mutex<BTreeSet<Group>>,
    /// All groups of the store are.
    everywhere: AtomicBool,
}

impl Refusals {
    fn noted(&self) -> MutexGuard<'_, BTreeSet<Group>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any caller can name groups that do not exist. They must not displace real ones, so too many names stand for all groups
    /// of the store.
    fn note(&self, group: Group) {
        let mut noted = self.noted();
        if noted.len() < MAX_GROUPS {
            noted.insert(group);
        } else if !noted.contains(&group) {
            self.everywhere.store(true, Ordering::Relaxed);
        }
    }
}

impl App {
    /// A beat was refused whose token was accepted.
    pub(crate) fn beat_was_refused(&self, path: &str) {
        meters::beat_refused();
        if let Some(group) = group_in(path) {
            self.refusals.note(group);
            self.loops.wake(REFUSALS);
        }
    }

    /// No connection could be accepted for longer than a gap, so beats of any group may have been kept out.
    pub(crate) fn nobody_can_connect(&self) {
        self.refusals.everywhere.store(true, Ordering::Relaxed);
        self.loops.wake(REFUSALS);
    }

    /// Reports a group to the store, unless it has no members: a report would create it.
    async fn spare(&self, group: &Group) -> Result<()> {
        let Some(steps) = self.store.steps() else {
            return Ok(());
        };
        if self.read(self.store.status(group)).await?.members == 0 {
            return Ok(());
        }
        loop {
            let batch = self.write(steps.spare(group, BATCH, Call::default())).await?;
            if !batch.ended.is_empty() {
                tenure::meters::ended(group, EndReason::Lapsed, batch.ended.len() as u64);
            }
            if !batch.more {
                return Ok(());
            }
        }
    }
}

/// The group, or the roster, of a path as clients write it: names need no escapes.
fn group_in(path: &str) -> Option<Group> {
    let mut parts = path.split('/').skip(2);
    let (kind, name) = (parts.next()?, parts.next()?);
    if kind == "rosters" {
        return RosterName::new(name).and_then(|roster| group_of(&roster)).ok();
    }
    Group::new(name).ok()
}

/// The loop that reports to the store. It holds the app weakly, as the watch does.
pub(crate) struct Sparing {
    app: Weak<App>,
    told: BTreeMap<Group, Mono>,
    /// The last group that was tried.
    last: Option<Group>,
}

impl Sparing {
    pub(crate) fn new(app: Weak<App>) -> Self {
        Self {
            app,
            told: BTreeMap::new(),
            last: None,
        }
    }

    /// Begins behind the last group that was tried, so that every group has its turn although the store is slow.
    fn in_turn(&self, mut groups: BTreeSet<Group>) -> VecDeque<Group> {
        let Some(last) = &self.last else {
            return groups.into_iter().collect();
        };
        let mut first = groups.split_off(last);
        groups.extend(first.take(last));
        first.into_iter().chain(groups).collect()
    }
}

/// What one turn did.
#[derive(Default)]
struct Told {
    groups: u64,
    failed: u64,
    /// The first of the errors.
    error: Option<Error>,
    /// Were reported just before, or could not be reported.
    later: Vec<Group>,
}

#[async_trait]
impl LoopBody for Sparing {
    async fn turn(&mut self) -> Result<Turn> {
        let Some(app) = self.app.upgrade() else {
            return Ok(Turn::idle());
        };
        let now = app.clock.mono();
        self.told.retain(|_, at| now.since(*at) < AGAIN);
        if app.refusals.everywhere.swap(false, Ordering::Relaxed) {
            let groups = app.groups().await.inspect_err(|_| {
                app.refusals.everywhere.store(true, Ordering::Relaxed);
            })?;
            app.refusals.noted().extend(groups);
        }
        let noted = std::mem::take(&mut *app.refusals.noted());
        let (mut groups, mut done) = (self.in_turn(noted), Told::default());
        while app.clock.mono().since(now) < SLICE
            && let Some(group) = groups.pop_front()
        {
            self.tell(&app, group, now, &mut done).await;
        }
        let next = match (groups.is_empty(), done.later.is_empty()) {
            (true, true) => None,
            (true, false) => Some(AGAIN),
            (false, _) => Some(Duration::ZERO),
        };
        app.refusals.noted().extend(groups.into_iter().chain(done.later));
        match done.error {
            Some(error) if done.groups == 0 => Err(error),
            _ => Ok(Turn {
                next,
                skipped: done.failed,
                ..Turn::default()
            }),
        }
    }
}

impl Sparing {
    /// Reports one group. A group that fails, as on a node that is away, holds up no other.
    async fn tell(&mut self, app: &App, group: Group, now: Mono, done: &mut Told) {
        if self.told.contains_key(&group) {
            done.later.push(group);
            return;
        }
        self.last = Some(group.clone());
        match app.spare(&group).await {
            Ok(()) => {
                done.groups += 1;
                self.told.insert(group, now);
            }
            Err(error) => {
                done.failed += 1;
                done.error.get_or_insert(error);
                done.later.push(group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_continue_behind_the_last_group() {
        let group = |name: &str| Group::new(name).unwrap();
        let mut sparing = Sparing::new(Weak::new());
        for (last, turns) in [
            (None, "abc"),
            (Some("a"), "bca"),
            (Some("c"), "abc"),
            (Some("bb"), "cab"),
        ] {
            sparing.last = last.map(group);
            let groups = ["a", "b", "c"].map(group).into();
            let in_turn: String = sparing.in_turn(groups).iter().map(Group::as_str).collect();
            assert_eq!(in_turn, turns, "{last:?}");
        }
    }

    #[test]
    fn too_many_names_stand_for_all_groups() {
        let refusals = Refusals::default();
        for number in 0..MAX_GROUPS {
            refusals.note(Group::new(format!("g{number}")).unwrap());
        }
        refusals.note(Group::new("g0").unwrap());
        assert!(!refusals.everywhere.load(Ordering::Relaxed));
        refusals.note(Group::new("one-more").unwrap());
        assert!(refusals.everywhere.load(Ordering::Relaxed));
        assert_eq!(refusals.noted().len(), MAX_GROUPS);
    }

    #[test]
    fn groups_and_rosters_are_found_in_paths() {
        for (path, group) in [
            ("/v1/groups/g/beats", Some("g")),
            ("/v1/groups/g/tenures/a@1/beat", Some("g")),
            ("/v1/rosters/r/providers/p/heartbeat", Some("roster.r")),
            ("/v1/groups/%20/beats", None),
            ("/livez", None),
        ] {
            assert_eq!(group_in(path).as_ref().map(Group::as_str), group, "{path}");
        }
    }
}
