//! Reports refused beats to the store, so that no member ends because the daemon was overloaded or could not accept
//! connections ([`Refusal`](tenure_core::refusal::Refusal)).

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
/// The longest interval of the loop; a refusal wakes it.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// The longest turn: a slow store must not make the loop look stuck.
const SLICE: Duration = Duration::from_secs(2);
/// The shortest interval between two reports of a group: half of the shortest ttl.
const AGAIN: Duration = Duration::from_millis(500);

/// The groups with refused beats that are not reported yet.
#[derive(Default)]
pub(crate) struct Refusals {
    noted: Mutex<BTreeSet<Group>>,
    /// Whether all groups of the store are to be reported.
    everywhere: AtomicBool,
}

impl Refusals {
    fn noted(&self) -> MutexGuard<'_, BTreeSet<Group>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Callers can name groups that do not exist. These must not displace real ones, so too many names mean all groups of the
    /// store.
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
    /// Records a refused beat whose token was accepted.
    pub(crate) fn beat_was_refused(&self, path: &str) {
        meters::beat_refused();
        if let Some(group) = group_in(path) {
            self.refusals.note(group);
            self.loops.wake(REFUSALS);
        }
    }

    /// Records that no connection could be accepted for longer than a gap: beats of every group may be missing.
    pub(crate) fn cannot_accept(&self) {
        self.refusals.everywhere.store(true, Ordering::Relaxed);
        self.loops.wake(REFUSALS);
    }

    /// Reports a group to the store. A group without members is skipped, since a report would create it.
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
            if !batch.more() {
                return Ok(());
            }
        }
    }
}

/// The group, or the group of the roster, in a raw path: names need no escapes.
pub(crate) fn group_in(path: &str) -> Option<Group> {
    let mut parts = path.split('/').skip(2);
    let (kind, name) = (parts.next()?, parts.next()?);
    if kind == "rosters" {
        return RosterName::new(name).and_then(|roster| group_of(&roster)).ok();
    }
    Group::new(name).ok()
}

/// The loop that reports to the store. It holds the app weakly, as the watch loop does.
pub(crate) struct RefusalReporter {
    app: Weak<App>,
    reported: BTreeMap<Group, Mono>,
    /// The group that was tried last.
    last: Option<Group>,
}

impl RefusalReporter {
    pub(crate) fn new(app: Weak<App>) -> Self {
        Self {
            app,
            reported: BTreeMap::new(),
            last: None,
        }
    }

    /// Starts after the group that was tried last, so that a slow store delays no group forever.
    fn in_turn(&self, mut groups: BTreeSet<Group>) -> VecDeque<Group> {
        let Some(last) = &self.last else {
            return groups.into_iter().collect();
        };
        let mut first = groups.split_off(last);
        groups.extend(first.take(last));
        first.into_iter().chain(groups).collect()
    }
}

/// The result of one turn.
#[derive(Default)]
struct TurnOutcome {
    groups: u64,
    failed: u64,
    /// The first error.
    error: Option<Error>,
    /// Groups that were reported just before, or failed.
    later: Vec<Group>,
}

#[async_trait]
impl LoopBody for RefusalReporter {
    async fn turn(&mut self) -> Result<Turn> {
        let Some(app) = self.app.upgrade() else {
            return Ok(Turn::idle());
        };
        let now = app.clock.mono();
        self.reported.retain(|_, at| now.since(*at) < AGAIN);
        if app.refusals.everywhere.swap(false, Ordering::Relaxed) {
            let groups = app.groups().await.inspect_err(|_| {
                app.refusals.everywhere.store(true, Ordering::Relaxed);
            })?;
            app.refusals.noted().extend(groups);
        }
        let noted = std::mem::take(&mut *app.refusals.noted());
        let (mut groups, mut done) = (self.in_turn(noted), TurnOutcome::default());
        while app.clock.mono().since(now) < SLICE
            && let Some(group) = groups.pop_front()
        {
            self.report(&app, group, now, &mut done).await;
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

impl RefusalReporter {
    /// Reports one group. A failing group, for example on a node that is down, delays no other.
    async fn report(&mut self, app: &App, group: Group, now: Mono, done: &mut TurnOutcome) {
        if self.reported.contains_key(&group) {
            done.later.push(group);
            return;
        }
        self.last = Some(group.clone());
        match app.spare(&group).await {
            Ok(()) => {
                done.groups += 1;
                self.reported.insert(group, now);
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
    fn turns_continue_after_the_last_group() {
        let group = |name: &str| Group::new(name).unwrap();
        let mut reporter = RefusalReporter::new(Weak::new());
        for (last, turns) in [
            (None, "abc"),
            (Some("a"), "bca"),
            (Some("c"), "abc"),
            (Some("bb"), "cab"),
        ] {
            reporter.last = last.map(group);
            let groups = ["a", "b", "c"].map(group).into();
            let in_turn: String = reporter.in_turn(groups).iter().map(Group::as_str).collect();
            assert_eq!(in_turn, turns, "{last:?}");
        }
    }

    #[test]
    fn too_many_names_mean_all_groups() {
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
