//! Owners without a heartbeat: since when each was seen without, and that the store served all along.

use std::time::Duration;

use tenure_core::time::StoreTime;

use super::brake::Dead;
use crate::health::{Break, Vitals};

/// What is known under one epoch. It lasts, across passes, for as long as the store's health holds.
pub(super) struct Watch {
    pub(super) epoch: String,
    /// The last check of the store's health.
    pub(super) last: Vitals,
    /// How many pages were removed. A page is read back by its number.
    pub(super) pages: u64,
    /// How many owners have a heartbeat, as far as the last looks tell.
    pub(super) alive: u64,
    cohorts: Vec<Cohort>,
}

/// Owners that one look was the first to find without a heartbeat.
struct Cohort {
    /// The store before that look.
    base: Vitals,
    /// When they may be judged: the settle time after that look.
    due: StoreTime,
    /// Whether they were, so that only the brake can hold them back.
    is_judged: bool,
    /// How many entries each has.
    absent: Dead,
}

impl Watch {
    pub(super) fn begin(epoch: String, base: Vitals) -> Self {
        Self {
            epoch,
            last: base,
            pages: 0,
            alive: 0,
            cohorts: Vec::new(),
        }
    }

    /// Takes a look at all owners, `base` being the store before it: those that have a heartbeat or no entry any more are
    /// no longer watched. `owners` is how many there are. Answers how many were found for the first time.
    pub(super) fn learn(&mut self, absent: &Dead, owners: u64, base: Vitals, settle: Duration) -> u64 {
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
            is_judged: false,
            absent: fresh,
        });
        self.tidy();
        count
    }

    /// Takes a check of the store's health, and answers what broke since the one before.
    pub(super) fn checked(&mut self, vitals: Vitals) -> Option<Break> {
        let broken = self.last.broken_by(&vitals);
        self.last = vitals;
        broken
    }

    /// Takes the second look at those that were due: only `dead` have no heartbeat still. Answers what broke since the
    /// first look at any of them.
    pub(super) fn judged(&mut self, vitals: Vitals, dead: &Dead) -> Option<Break> {
        let due = |cohort: &&Cohort| cohort.due <= self.last.at;
        let broken = self
            .cohorts
            .iter()
            .filter(due)
            .find_map(|cohort| cohort.base.broken_by(&vitals));
        let now = self.last.at;
        for cohort in self.cohorts.iter_mut().filter(|cohort| cohort.due <= now) {
            cohort.is_judged = true;
            let before = cohort.absent.len();
            cohort.absent.retain(|owner, _| dead.contains_key(owner));
            self.alive += (before - cohort.absent.len()) as u64;
        }
        self.tidy();
        let since_last = self.checked(vitals);
        broken.or(since_last)
    }

    /// Whoever is watched for long enough, judged or not.
    pub(super) fn due(&self) -> Dead {
        let due = self.cohorts.iter().filter(|cohort| cohort.due <= self.last.at);
        due.flat_map(|cohort| cohort.absent.clone()).collect()
    }

    /// Everyone who is watched.
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

    /// Whether anyone is due who was not judged.
    pub(super) fn has_settled(&self) -> bool {
        self.settles_in().is_some_and(|wait| wait.is_zero())
    }

    /// Whether anyone has still to be judged.
    pub(super) fn is_settling(&self) -> bool {
        self.settles_in().is_some()
    }

    /// How long until the next are due, since the last check.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        let settling = self.cohorts.iter().filter(|cohort| !cohort.is_judged);
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

    fn at(seconds: u64) -> Vitals {
        Vitals {
            life: 1,
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
    fn each_owner_settles_from_its_own_first_look() {
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
        assert_eq!(watch.judged(at(6), &owners(&["a"])), None);
        watch.forget(|owner| owner == b"a");
        assert_eq!((watch.due(), watch.has_settled()), (Dead::new(), false));
        assert_eq!(watch.alive, 2, "who is gone is not alive");
        assert_eq!(watch.checked(at(8)), None);
        assert_eq!(watch.due(), owners(&["b"]));
    }

    #[test]
    fn an_owner_that_is_back_settles_from_the_beginning() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a", "b"]);
        assert_eq!(looked(&mut watch, 2, &["b"]), 0);
        assert_eq!(looked(&mut watch, 4, &["a", "b"]), 1);
        assert_eq!(watch.checked(at(6)), None);
        assert_eq!(watch.due(), owners(&["b"]));
        // At the second look it is back as well.
        assert_eq!(watch.judged(at(6), &Dead::new()), None);
        assert_eq!((watch.absent(), watch.alive), (owners(&["a"]), 4));
        looked(&mut watch, 8, &[]);
        assert!(watch.is_empty() && !watch.is_settling());
    }

    #[test]
    fn what_the_brake_holds_back_stays_due() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a"]);
        assert_eq!(watch.checked(at(6)), None);
        assert_eq!(watch.judged(at(6), &owners(&["a"])), None);
        assert!(watch.is_due() && !watch.is_settling() && !watch.is_empty());
    }

    #[test]
    fn a_drift_since_the_first_look_is_a_break() {
        let mut watch = Watch::begin("e".to_owned(), at(0));
        looked(&mut watch, 0, &["a"]);
        // The store's clock gains a second in each step, which alone is no jump.
        for second in 1..=3 {
            let ahead = Vitals {
                at: at(second * 2).at,
                ..at(second)
            };
            assert_eq!(watch.checked(ahead), None);
        }
        let ahead = Vitals { at: at(7).at, ..at(4) };
        assert_eq!(watch.judged(ahead, &Dead::new()), Some(Break::ClockJumped));
    }
}
