//! The brake of an adopted hash: when more than half of its owners appear dead at the same time, removal pauses.
//!
//! All janitors of one hash share a record in the store, so that manual runs, cron runs and daemons agree on the end of
//! the brake. The record lists the owners that it holds. When its time is over, these are freed, and a second mass
//! death after it engages the brake again. So the entries of a dead owner are held for a bounded time, however much the
//! fleet shrank.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::brake::{Brake, BrakeSettings};
use tenure_core::time::StoreTime;

/// How long a record outlives the brake: a janitor that runs at least this often sees the brake end.
pub(crate) const KEPT_AFTER: Duration = Duration::from_secs(3600);

/// Dead owners and their numbers of entries.
pub(crate) type Dead = BTreeMap<Vec<u8>, u64>;

/// The record of an engaged brake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrakeRecord {
    /// When the brake engaged.
    pub(crate) since: StoreTime,
    held: BTreeSet<u64>,
    /// The record as stored.
    pub(crate) raw: Vec<u8>,
}

impl BrakeRecord {
    /// Parses a record: its time, a space, and eight bytes per held owner. `None` for an invalid record, which is
    /// ignored.
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

    /// The part of a record after its time, for these owners.
    pub(crate) fn body<'a>(owners: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
        owners.flat_map(|owner| fingerprint(owner).to_le_bytes()).collect()
    }

    fn holds(&self, owner: &[u8]) -> bool {
        self.held.contains(&fingerprint(owner))
    }
}

/// 64-bit FNV-1a. A collision only makes the brake count one owner less.
fn fingerprint(owner: &[u8]) -> u64 {
    owner.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Which of the dead owners may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrakeDecision {
    /// The owners whose entries may be removed now.
    pub(crate) free: Dead,
    /// Set when other owners are held back.
    pub(crate) braked: Option<Brake>,
    /// The change of the record.
    pub(crate) record: RecordChange,
}

/// A change of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordChange {
    /// No change.
    Keep,
    /// Replace it by a new one that holds these owners.
    Engage,
    /// Delete it, for this reason, after the entries of the freed owners are removed. Until then it marks them as free.
    Lift(&'static str),
}

/// Decides which owners may be removed.
pub(crate) fn decide(
    settings: &BrakeSettings,
    record: Option<&BrakeRecord>,
    dead: &Dead,
    alive: u64,
    now: StoreTime,
    force: bool,
) -> BrakeDecision {
    let braked = |since: StoreTime, lapsed: u64| {
        let until = since + settings.hold;
        Some(Brake {
            since,
            until,
            lapsed,
            present: alive,
        })
    };
    let free_all = |record: RecordChange| BrakeDecision {
        free: dead.clone(),
        braked: None,
        record,
    };
    let count = dead.len() as u64;
    let Some(record) = record else {
        if force || !settings.too_many(count, alive) {
            return free_all(RecordChange::Keep);
        }
        return BrakeDecision {
            free: Dead::new(),
            braked: braked(now, count),
            record: RecordChange::Engage,
        };
    };
    if force {
        return free_all(RecordChange::Lift("operator"));
    }
    if !settings.too_many(count, alive) {
        return free_all(RecordChange::Lift("recovered"));
    }
    // If the clock fell back, the brake must not last longer.
    if now >= record.since && now < record.since + settings.hold {
        return BrakeDecision {
            free: Dead::new(),
            braked: braked(record.since, count),
            record: RecordChange::Keep,
        };
    }
    let (held, fresh): (Dead, Dead) = dead.clone().into_iter().partition(|(owner, _)| record.holds(owner));
    let fresh_count = fresh.len() as u64;
    if !settings.too_many(fresh_count, alive) {
        return free_all(RecordChange::Lift("time"));
    }
    BrakeDecision {
        free: held,
        braked: braked(now, fresh_count),
        record: RecordChange::Engage,
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

    fn record(since: u64, owners: &Dead) -> BrakeRecord {
        let mut raw = format!("{} ", since * 1_000_000).into_bytes();
        raw.extend(BrakeRecord::body(owners.keys()));
        BrakeRecord::read(raw).unwrap()
    }

    fn decided(record: Option<&BrakeRecord>, dead: &Dead, alive: u64, now: u64) -> (usize, bool, RecordChange) {
        let decision = decide(&BrakeSettings::default(), record, dead, alive, at(now), false);
        (decision.free.len(), decision.braked.is_some(), decision.record)
    }

    #[test]
    fn brake_engages_above_half_of_at_least_ten_owners() {
        assert_eq!(decided(None, &dead(0..15), 5, 1000), (0, true, RecordChange::Engage));
        assert_eq!(decided(None, &dead(0..10), 10, 1000), (10, false, RecordChange::Keep));
        for alive in [0, 1] {
            assert_eq!(decided(None, &dead(0..1), alive, 1000), (1, false, RecordChange::Keep));
        }
        assert_eq!(decided(None, &dead(0..9), 0, 1000), (9, false, RecordChange::Keep));
    }

    #[test]
    fn brake_ends_in_time_in_a_shrunken_fleet() {
        let ghosts = dead(0..15);
        let record = record(1000, &ghosts);
        assert_eq!(
            decided(Some(&record), &ghosts, 5, 1000 + HOLD - 1),
            (0, true, RecordChange::Keep)
        );
        assert_eq!(
            decided(Some(&record), &ghosts, 5, 1000 + HOLD),
            (15, false, RecordChange::Lift("time"))
        );
        assert_eq!(
            decided(Some(&record), &ghosts, 5, 900),
            (15, false, RecordChange::Lift("time")),
            "a clock that fell back"
        );
    }

    #[test]
    fn brake_ends_early_when_enough_owners_recover() {
        let record = record(1000, &dead(0..99));
        assert_eq!(
            decided(Some(&record), &dead(0..1), 99, 1001),
            (1, false, RecordChange::Lift("recovered"))
        );
    }

    #[test]
    fn second_mass_death_engages_the_brake_again() {
        let record = record(1000, &dead(0..15));
        assert_eq!(
            decided(Some(&record), &dead(0..45), 5, 1000 + HOLD),
            (15, true, RecordChange::Engage)
        );
        assert_eq!(
            decided(Some(&record), &dead(0..16), 5, 1000 + HOLD),
            (16, false, RecordChange::Lift("time"))
        );
    }

    #[test]
    fn operator_overrides_the_brake() {
        let settings = BrakeSettings::default();
        let ghosts = dead(0..15);
        for record in [None, Some(record(1000, &ghosts))] {
            let decision = decide(&settings, record.as_ref(), &ghosts, 0, at(1001), true);
            assert_eq!((decision.free.len(), decision.braked), (15, None));
        }
    }

    #[test]
    fn invalid_records_are_ignored() {
        for raw in [&b""[..], b"1000", b"x ", b"1000 1234567"] {
            assert_eq!(BrakeRecord::read(raw.to_vec()), None);
        }
        assert!(record(7, &dead(0..3)).holds(b"i-2"));
        assert!(!record(7, &dead(0..3)).holds(b"i-3"));
    }
}
