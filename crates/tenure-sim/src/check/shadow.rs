//! The record itself: current tenures, ended ones, claims and leases. It is cloned with each copy of the store, so that
//! a restart from the copy has the matching record.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{EndReason, EventId, Key, MemberId, RegistryName, SessionId, StoreTime, TenureId};
use tenure_core::id::LeaseName;
use tenure_core::lease::{Place, Token};
use tenure_core::settling::{LEVELS, PULSE_EVERY};

use super::session_record::SessionRecord;
use crate::time::At;

/// A current tenure.
#[derive(Debug, Clone)]
pub struct Current {
    /// The tenure.
    pub tenure: TenureId,
    /// Its ttl.
    pub ttl: Duration,
    /// The store's time of its join or last beat.
    pub renewed_at: StoreTime,
    /// The same instant in world time.
    pub renewed_in_world: At,
    /// The sum of the store clock's forward jumps by then, in microseconds.
    pub jumped: u64,
}

/// An ended tenure.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The tenure before it ended.
    pub current: Current,
    /// The reason.
    pub reason: EndReason,
    /// Its end time, had it not ended earlier.
    pub end: StoreTime,
    /// The time of its end.
    pub at: StoreTime,
}

/// A grant that an operator released.
#[derive(Debug, Clone)]
pub struct Revoked {
    /// The ttl of its holder.
    pub ttl: Duration,
    /// When that ttl began.
    pub began: StoreTime,
    /// The sum of the store clock's forward jumps by then, in microseconds.
    pub jumped: u64,
}

/// The pulse of the store, by its beats.
#[derive(Debug, Clone, Copy)]
pub struct PulseRecord {
    last: StoreTime,
    /// For each level, the end of the last hole longer than that.
    ends: [StoreTime; 3],
}

impl PulseRecord {
    fn beaten(before: Option<Self>, now: StoreTime) -> Self {
        let Some(Self { last, mut ends }) = before.filter(|pulse| pulse.last <= now) else {
            return Self {
                last: now,
                ends: [now; 3],
            };
        };
        let hole = now.since(last);
        if hole < PULSE_EVERY / 2 {
            return Self { last, ends };
        }
        for (nth, level) in LEVELS.into_iter().enumerate() {
            if hole > level {
                ends[nth] = now;
            }
        }
        Self { last: now, ends }
    }

    /// The end of the last hole longer than this level; now while one is open.
    fn end_of_hole(&self, gap: Duration, now: StoreTime) -> StoreTime {
        let is_open = now < self.last || now.since(self.last) > gap;
        let level = LEVELS.iter().position(|level| *level == gap);
        match level.filter(|_| !is_open) {
            Some(level) => self.ends[level],
            None => now,
        }
    }
}

/// The record of the store's data.
#[derive(Debug, Clone, Default)]
pub struct Shadow {
    /// The pulse; `None` before its first beat.
    pub pulse: Option<PulseRecord>,
    /// When a beat of the group last failed although the store served.
    pub failed_at: StoreTime,
    /// The store's time of the last step that wrote.
    pub last_step: Option<StoreTime>,
    /// The latest time of any step that wrote.
    pub latest: StoreTime,
    /// When all ttls were last restarted.
    pub resumed_at: StoreTime,
    /// The sum of the store clock's forward jumps by then, in microseconds.
    pub jumped_at_resume: u64,
    /// Current tenures.
    pub current: BTreeMap<MemberId, Current>,
    /// Tenures that ended.
    pub ended: BTreeMap<TenureId, Ended>,
    /// Claims and their owners.
    pub claims: BTreeMap<(RegistryName, Key), TenureId>,
    /// The places of leases that are taken, with their holders and tokens.
    pub leases: BTreeMap<(LeaseName, Place), (TenureId, Token)>,
    /// Sessions and their connections.
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    /// The ttl of the providers of a roster, by the settings that its mirror has.
    pub provider_ttl: Option<Duration>,
    /// What an operator released, by token: the tenure of the holder, and how long it lasted at that time.
    pub revoked: BTreeMap<Token, Revoked>,
    /// The number of the newest event.
    pub last_event: EventId,
    /// The brake is engaged.
    pub braked: bool,
    /// The end of the group's grace.
    pub unsettled_until: Option<StoreTime>,
}

impl Shadow {
    /// Restarts all ttls.
    pub fn resume(&mut self, at: StoreTime, jumped: u64) {
        if at != self.resumed_at {
            self.resumed_at = at;
            self.jumped_at_resume = jumped;
        }
    }

    /// Records a beat of the pulse.
    pub fn pulsed(&mut self, now: StoreTime, has_failed: bool) {
        self.pulse = Some(PulseRecord::beaten(self.pulse, now));
        if has_failed {
            self.failed_at = now;
        }
    }

    /// The tenure, if it is its member's current one.
    #[must_use]
    pub fn current(&self, tenure: &TenureId) -> Option<&Current> {
        let current = self.current.get(tenure.member());
        current.filter(|current| current.tenure == *tenure)
    }

    /// The end time of a current tenure if all ttls were last restarted at `resumed_at`.
    #[must_use]
    pub fn end_of(current: &Current, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        let graced = resumed_at + current.ttl;
        if current.renewed_at > now + LEVELS[0] {
            // Its beat came before the clock fell back: only the ttl restarted since then counts. A shorter fall may go
            // unnoticed, and shortens nothing.
            graced
        } else {
            graced.max(current.renewed_at + current.ttl)
        }
    }

    /// The places of a lease that are taken.
    pub fn places<'a>(&'a self, lease: &LeaseName) -> impl Iterator<Item = (Place, &'a (TenureId, Token))> {
        let all = (lease.clone(), Place::FIRST)..=(lease.clone(), Place::LAST);
        self.leases.range(all).map(|((_, place), held)| (*place, held))
    }

    /// Whether the tenure is alive at this instant.
    #[must_use]
    pub fn is_alive(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> bool {
        let current = self.current(tenure);
        current.is_some_and(|current| now < Self::end_of(current, resumed_at, now))
    }

    /// When all ttls last restarted, as of now: also by a hole that no step has met yet.
    #[must_use]
    pub fn resumed(&self, now: StoreTime, gap: Duration) -> StoreTime {
        let Some(last) = self.last_step else { return now };
        let Some(pulse) = self.pulse else {
            // A group goes by its own last step until the pulse begins.
            let is_silent = now < last || now.since(last) > gap;
            return if is_silent { now } else { self.resumed_at };
        };
        let hole = pulse.end_of_hole(gap, now);
        let end = if self.failed_at <= now {
            hole.max(self.failed_at)
        } else {
            hole
        };
        // What a clock wrote that has since fallen back is no time.
        if self.resumed_at > now {
            end
        } else {
            self.resumed_at.max(end)
        }
    }
}
