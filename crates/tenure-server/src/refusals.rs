//! Beats that had to be refused, because too much was asked at once or nobody could connect: the store is told, so that no
//! member ends by it ([`Refusal`](tenure_core::refusal::Refusal)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, Turn};
use tenure_core::clock::Mono;
use tenure_core::error::Result;
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
/// How long one turn goes on: a store that is slow must not make it look stuck.
const SLICE: Duration = Duration::from_secs(2);
/// How often the store is told about one group: half of the shortest ttl.
const AGAIN: Duration = Duration::from_millis(500);

/// The groups that the store is to be told about.
#[derive(Default)]
pub(crate) struct Refusals {
    noted: Mutex<BTreeSet<Group>>,
    everywhere: AtomicBool,
}

impl Refusals {
    fn noted(&self) -> MutexGuard<'_, BTreeSet<Group>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, group: Group) {
        let mut noted = self.noted();
        if noted.len() < MAX_GROUPS {
            noted.insert(group);
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

    /// Tells the store. A group that has no members is left alone: telling would make it.
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

/// The loop that tells the store. It holds the app weakly, as the watch does.
pub(crate) struct Sparing {
    app: Weak<App>,
    told: BTreeMap<Group, Mono>,
}

impl Sparing {
    pub(crate) fn new(app: Weak<App>) -> Self {
        let told = BTreeMap::new();
        Self { app, told }
    }
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
            groups.into_iter().for_each(|group| app.refusals.note(group));
        }
        let (mut groups, mut later) = (std::mem::take(&mut *app.refusals.noted()), BTreeSet::new());
        let mut failed = None;
        while failed.is_none()
            && app.clock.mono().since(now) < SLICE
            && let Some(group) = groups.pop_first()
        {
            if self.told.contains_key(&group) {
                later.insert(group);
                continue;
            }
            match app.spare(&group).await {
                Ok(()) => drop(self.told.insert(group, now)),
                Err(error) => {
                    groups.insert(group);
                    failed = Some(error);
                }
            }
        }
        let next = match (groups.is_empty(), later.is_empty()) {
            (true, true) => None,
            (true, false) => Some(AGAIN),
            (false, _) => Some(Duration::ZERO),
        };
        groups
            .into_iter()
            .chain(later)
            .for_each(|group| app.refusals.note(group));
        match failed {
            Some(error) => Err(error),
            None => Ok(Turn {
                next,
                ..Turn::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
