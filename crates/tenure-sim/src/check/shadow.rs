//! The record itself: current tenures, ended ones, claims and leases. It is cloned with each copy of the store, so that
//! a restart from the copy has the matching record.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{EndReason, EventId, Key, MemberId, RegistryName, SessionId, StoreTime, TenureId};
use tenure_core::id::LeaseName;
use tenure_core::lease::{Place, Token};

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

/// The record of the store's data.
#[derive(Debug, Clone, Default)]
pub struct Shadow {
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

    /// Whether the store did not serve before this instant: no step for longer than the gap, a clock that fell back, or
    /// no step ever.
    #[must_use]
    pub fn silent(&self, now: StoreTime, gap: Duration) -> bool {
        self.last_step.is_none_or(|last| now < last || now.since(last) > gap)
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
        if current.renewed_at > now {
            // Its beat came before the clock fell back: only the ttl restarted since then counts.
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

    /// For reads, which write nothing: a silence that no step has detected yet counts as detected now.
    #[must_use]
    pub fn resumed_for_reading(&self, now: StoreTime, gap: Duration) -> StoreTime {
        if self.silent(now, gap) { now } else { self.resumed_at }
    }
}
