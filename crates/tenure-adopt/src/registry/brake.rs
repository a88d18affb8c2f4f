//! The brake of an adopted hash: when more than half of its owners seem dead at once, nothing is removed for a while.
//!
//! All janitors of one hash share one record in the store, so that a run by hand, a run by cron and a daemon agree on
//! when the brake ends. The record remembers *which* owners it holds: when its time is over those are let go, and a
//! second mass death after it is braked by itself. So the entries of a dead owner are held for a bounded time, however
//! the fleet shrank.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::brake::{Brake, BrakeSettings};
use tenure_core::time::StoreTime;

/// How long a record outlives the brake: whoever sweeps at least this often sees the brake end.
pub(crate) const KEPT_AFTER: Duration = Duration::from_secs(3600);

/// Who is dead, and how many entries each has.
pub(crate) type Dead = BTreeMap<Vec<u8>, u64>;

/// The record of a brake that was engaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// When it engaged.
    pub(crate) since: StoreTime,
    held: BTreeSet<u64>,
    /// As it stands in the store.
    pub(crate) raw: Vec<u8>,
}

impl Record {
    /// Reads a record: its time, a space, and eight bytes for each owner that it holds. `None` when it is none, which is
    /// then as if there were none.
    pub(crate) fn read(raw: Vec<u8>) -> Option<Self> {
        let space = raw.iter().position(|byte| *byte == b' ')?;
        let micros: u64 = std::str::from_utf8(&raw[..space]).ok()?.parse().ok()?;
        let (held, rest) = raw[space + 1..].as_chunks::<8>();
        if !rest.is_empty() {
            return None;
        }
        let held = held.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Some(Self {
            since: StoreTime::from_micros(micros),
            held,
            raw,
        })
    }

    /// What goes behind the time in a record that holds these.
    pub(crate) fn body<'a>(owners: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
        owners.flat_map(|owner| fingerprint(owner).to_le_bytes()).collect()
    }

    fn holds(&self, owner: &[u8]) -> bool {
        self.held.contains(&fingerprint(owner))
    }
}

/// 64-bit FNV-1a. Two owners with the same one cost nothing but a brake that counts one owner less.
fn fingerprint(owner: &[u8]) -> u64 {
    owner.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What to do about the dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// Whose entries may be removed now.
    pub(crate) free: Dead,
    /// Set when others are held back.
    pub(crate) braked: Option<Brake>,
    /// What becomes of the record.
    pub(crate) record: Change,
}

/// What becomes of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It stays as it is.
    Keep,
    /// A new one is made that holds these, in place of the one there was.
    Engage,
    /// It goes, for this reason. Once the entries of the free are removed: until then it tells that they are free.
    Lift(&'static str),
}

/// Decides who may be removed.
pub(crate) fn rule(
    settings: &BrakeSettings,
    record: Option<&Record>,
    dead: &Dead,
    alive: u64,
    now: StoreTime,
    force: bool,
) -> Ruling {
    let braked = |since: StoreTime, lapsed: u64| {
        let until = since + settings.hold;
        Some(Brake {
            since,
            until,
            lapsed,
            present: alive,
        })
    };
    let free_all = |record: Change| Ruling {
        free: dead.clone(),
        braked: None,
        record,
    };
    let count = dead.len() as u64;
    let Some(record) = record else {
        if force || !settings.too_many(count, alive) {
            return free_all(Change::Keep);
        }
        return Ruling {
            free: Dead::new(),
            braked: braked(now, count),
            record: Change::Engage,
        };
    };
    if force {
        return free_all(Change::Lift("operator"));
    }
    if !settings.too_many(count, alive) {
        return free_all(Change::Lift("recovered"));
    }
    // A clock that fell back must not hold for longer than the brake may.
    if now >= record.since && now < record.since + settings.hold {
        return Ruling {
            free: Dead::new(),
            braked: braked(record.since, count),
            record: Change::Keep,
        };
    }
    let (held, fresh): (Dead, Dead) = dead.clone().into_iter().partition(|(owner, _)| record.holds(owner));
    let fresh_count = fresh.len() as u64;
    if !settings.too_many(fresh_count, alive) {
        return free_all(Change::Lift("time"));
    }
    Ruling {
        free: held,
        braked: braked(now, fresh_count),
        record: Change::Engage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 300;

    fn at(seconds: u64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }

    fn dead(owners: std::ops::Range<u32>) -> Dead {
        owners.map(|n| (format!("i-{n}").into_bytes(), 1)).collect()
    }

    fn record(since: u64, owners: &Dead) -> Record {
        let mut raw = format!("{} ", since * 1_000_000).into_bytes();
        raw.extend(Record::body(owners.keys()));
        Record::read(raw).unwrap()
    }

    fn ruled(record: Option<&Record>, dead: &Dead, alive: u64, now: u64) -> (usize, bool, Change) {
        let ruling = rule(&BrakeSettings::default(), record, dead, alive, at(now), false);
        (ruling.free.len(), ruling.braked.is_some(), ruling.record)
    }

    #[test]
    fn it_engages_above_half_of_at_least_ten_and_never_in_a_small_fleet() {
        assert_eq!(ruled(None, &dead(0..15), 5, 1000), (0, true, Change::Engage));
        assert_eq!(ruled(None, &dead(0..10), 10, 1000), (10, false, Change::Keep));
        for alive in [0, 1] {
            assert_eq!(ruled(None, &dead(0..1), alive, 1000), (1, false, Change::Keep));
        }
        assert_eq!(ruled(None, &dead(0..9), 0, 1000), (9, false, Change::Keep));
    }

    #[test]
    fn it_ends_by_itself_however_the_fleet_shrank() {
        let ghosts = dead(0..15);
        let record = record(1000, &ghosts);
        assert_eq!(
            ruled(Some(&record), &ghosts, 5, 1000 + HOLD - 1),
            (0, true, Change::Keep)
        );
        assert_eq!(
            ruled(Some(&record), &ghosts, 5, 1000 + HOLD),
            (15, false, Change::Lift("time"))
        );
        assert_eq!(
            ruled(Some(&record), &ghosts, 5, 900),
            (15, false, Change::Lift("time")),
            "a clock that fell back"
        );
    }

    #[test]
    fn it_ends_early_when_enough_are_back() {
        let record = record(1000, &dead(0..99));
        assert_eq!(
            ruled(Some(&record), &dead(0..1), 99, 1001),
            (1, false, Change::Lift("recovered"))
        );
    }

    #[test]
    fn a_second_mass_death_after_its_end_is_braked_by_itself() {
        let record = record(1000, &dead(0..15));
        assert_eq!(
            ruled(Some(&record), &dead(0..45), 5, 1000 + HOLD),
            (15, true, Change::Engage)
        );
        assert_eq!(
            ruled(Some(&record), &dead(0..16), 5, 1000 + HOLD),
            (16, false, Change::Lift("time"))
        );
    }

    #[test]
    fn an_operator_overrides_it() {
        let settings = BrakeSettings::default();
        let ghosts = dead(0..15);
        for record in [None, Some(record(1000, &ghosts))] {
            let ruling = rule(&settings, record.as_ref(), &ghosts, 0, at(1001), true);
            assert_eq!((ruling.free.len(), ruling.braked), (15, None));
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        for raw in [&b""[..], b"1000", b"x ", b"1000 1234567"] {
            assert_eq!(Record::read(raw.to_vec()), None);
        }
        assert!(record(7, &dead(0..3)).holds(b"i-2"));
        assert!(!record(7, &dead(0..3)).holds(b"i-3"));
    }
}
