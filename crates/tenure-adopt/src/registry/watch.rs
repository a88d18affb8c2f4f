//! Owners without a heartbeat: since when each was absent, and whether the store served continuously.

use std::time::Duration;

use tenure_core::time::StoreTime;

use super::brake::Dead;
use crate::health::{Break, ServerSnapshot};

/// The state of one epoch. It lasts across passes as long as the store's health holds.
pub(super) struct Watch {
    pub(super) epoch: String,
    /// The last health check.
    pub(super) last: ServerSnapshot,
    /// The number of evicted pages. A page is read back by its number.
    pub(super) pages: u64,
    /// How many owners have a heartbeat, by the last checks.
    pub(super) alive: u64,
    cohorts: Vec<Cohort>,
}

/// Owners that one check was the first to find without a heartbeat.
struct Cohort {
    /// The server before that check.
    base: ServerSnapshot,
    /// When the second check is due: the settle time after the first.
    due: StoreTime,
    /// Whether the second check was done, so that only the brake can hold the owners back.
    is_confirmed: bool,
    /// The owners and their numbers of entries.
    absent: Dead,
}

impl Watch {
    pub(super) fn begin(epoch: String, base: ServerSnapshot) -> Self {
        Self {
            epoch,
            last: base,
            pages: 0,
            alive: 0,
            cohorts: Vec::new(),
        }
    }

    /// Records a check of all owners. `base` is the server before it, `owners` their total. Owners that have a
    /// heartbeat or no entry any more are no longer watched. Returns how many absent owners are new.
    pub(super) fn learn(&mut self, absent: &Dead, owners: u64, base: ServerSnapshot, settle: Duration) -> u64 {
        let mut fresh = absent.clone();
        self.alive = owners.saturating_sub(absent.len() as u64);
        for cohort in &mut self.cohorts {
            cohort.absent.retain(|owner, entries| match fresh.remove(owner) {
                Some(now) => {
                    *entries = now;
                    true
                }
                None => false,
            });
        }
        let count = fresh.len() as u64;
        self.cohorts.push(Cohort {
            base,
            due: self.last.at + settle,
            is_confirmed: false,
            absent: fresh,
        });
        self.tidy();
        count
    }

    /// Records a health check. Returns the break since the last one, if any.
    pub(super) fn checked(&mut self, snapshot: ServerSnapshot) -> Option<Break> {
        let broken = self.last.broken_by(&snapshot);
        self.last = snapshot;
        broken
    }

    /// Records the second check of the due owners: only `dead` are still absent. Returns the break since their first
    /// check, if any.
    pub(super) fn confirm(&mut self, snapshot: ServerSnapshot, dead: &Dead) -> Option<Break> {
        let due = |cohort: &&Cohort| cohort.due <= self.last.at;
        let broken = self
            .cohorts
            .iter()
            .filter(due)
            .find_map(|cohort| cohort.base.broken_by(&snapshot));
        let now = self.last.at;
        for cohort in self.cohorts.iter_mut().filter(|cohort| cohort.due <= now) {
            cohort.is_confirmed = true;
            let before = cohort.absent.len();
            cohort.absent.retain(|owner, _| dead.contains_key(owner));
            self.alive += (before - cohort.absent.len()) as u64;
        }
        self.tidy();
        let since_last = self.checked(snapshot);
        broken.or(since_last)
    }

    /// The owners whose settle time is over.
    pub(super) fn due(&self) -> Dead {
        let due = self.cohorts.iter().filter(|cohort| cohort.due <= self.last.at);
        due.flat_map(|cohort| cohort.absent.clone()).collect()
    }

    /// All watched owners.
    pub(super) fn absent(&self) -> Dead {
        self.cohorts.iter().flat_map(|cohort| cohort.absent.clone()).collect()
    }

    pub(super) fn forget(&mut self, is_done: impl Fn(&Vec<u8>) -> bool) {
        for cohort in &mut self.cohorts {
            cohort.absent.retain(|owner, _| !is_done(owner));
        }
        self.tidy();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cohorts.is_empty()
    }

    pub(super) fn is_due(&self) -> bool {
        self.cohorts.iter().any(|cohort| cohort.due <= self.last.at)
    }

    /// Whether any owner is due and not confirmed.
    pub(super) fn has_settled(&self) -> bool {
        self.settles_in().is_some_and(|wait| wait.is_zero())
    }

    /// Whether any owner is not confirmed.
    pub(super) fn is_settling(&self) -> bool {
        self.settles_in().is_some()
    }

    /// The time until the next owners are due, since the last health check.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        let settling = self.cohorts.iter().filter(|cohort| !cohort.is_confirmed);
        settling.map(|cohort| cohort.due.since(self.last.at)).min()
    }

    fn tidy(&mut self) {
        self.cohorts.retain(|cohort| !cohort.absent.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::Mono;

    const SETTLE: Duration = Duration::from_secs(6);

    fn at(seconds: u64) -> ServerSnapshot {
        ServerSnapshot {
            generation: 1,
            at: StoreTime::from_micros(seconds * 1_000_000),
            arrived: Mono::from_origin(Duration::from_secs(seconds)),
            marker: true,
            info: None,
        }
    }

    fn owners(names: &[&str]) -> Dead {
        names.iter().map(|name| (name.as_bytes().to_vec(), 1)).collect()
    }

    fn looked(watch: &mut Watch, second: u64, absent: &[&str]) -> u64 {
        assert_eq!(watch.checked(at(second)), None);
        watch.learn(&owners(absent), 5, at(second), SETTLE)
    }

    #[test]
    fn each_owner_settles_from_its_own_first_check() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        assert_eq!(looked(&mut watch, 0, &["a"]), 1);
        assert_eq!(looked(&mut watch, 2, &["a", "b"]), 1);
        assert_eq!(looked(&mut watch, 4, &["a", "b", "c"]), 1);
        assert_eq!(
            (watch.is_due(), watch.settles_in()),
            (false, Some(Duration::from_secs(2)))
        );
        assert_eq!(watch.checked(at(6)), None);
        assert!(watch.has_settled());
        assert_eq!(watch.due(), owners(&["a"]));
        assert_eq!(watch.absent(), owners(&["a", "b", "c"]));
        assert_eq!(watch.confirm(at(6), &owners(&["a"])), None);
        watch.forget(|owner| owner == b"a");
        assert_eq!((watch.due(), watch.has_settled()), (Dead::new(), false));
        assert_eq!(watch.alive, 2, "an evicted owner is not alive");
        assert_eq!(watch.checked(at(8)), None);
        assert_eq!(watch.due(), owners(&["b"]));
    }

    #[test]
    fn recovered_owner_settles_from_the_start() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a", "b"]);
        assert_eq!(looked(&mut watch, 2, &["b"]), 0);
        assert_eq!(looked(&mut watch, 4, &["a", "b"]), 1);
        assert_eq!(watch.checked(at(6)), None);
        assert_eq!(watch.due(), owners(&["b"]));
        // At the second check this owner has recovered as well.
        assert_eq!(watch.confirm(at(6), &Dead::new()), None);
        assert_eq!((watch.absent(), watch.alive), (owners(&["a"]), 4));
        looked(&mut watch, 8, &[]);
        assert!(watch.is_empty() && !watch.is_settling());
    }

    #[test]
    fn braked_owners_stay_due() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a"]);
        assert_eq!(watch.checked(at(6)), None);
        assert_eq!(watch.confirm(at(6), &owners(&["a"])), None);
        assert!(watch.is_due() && !watch.is_settling() && !watch.is_empty());
    }

    #[test]
    fn clock_drift_since_the_first_check_is_a_break() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a"]);
        // The store's clock gains a second per step, which alone is not a jump.
        for second in 1..=3 {
            let ahead = ServerSnapshot {
                at: at(second * 2).at,
                ..at(second)
            };
            assert_eq!(watch.checked(ahead), None);
        }
        let ahead = ServerSnapshot { at: at(7).at, ..at(4) };
        assert_eq!(watch.confirm(ahead, &Dead::new()), Some(Break::ClockJumped));
    }
}
