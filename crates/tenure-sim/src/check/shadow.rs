//! The account itself: who is current, what ended, who owns what. Cloned whenever a copy of the store is made, so that
//! a restart from that copy finds its account.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{EndReason, EventId, Key, MemberId, RegistryName, StoreTime, TenureId};
use tenure_core::id::LeaseName;
use tenure_core::lease::Token;

use crate::time::At;

/// A current tenure.
#[derive(Debug, Clone)]
pub struct Current {
    /// Which.
    pub tenure: TenureId,
    /// Its ttl.
    pub ttl: Duration,
    /// The store's time of its join or last beat.
    pub renewed_at: StoreTime,
    /// The world's time of it.
    pub renewed_in_world: At,
    /// How far the store's clock had jumped forward by then, in microseconds.
    pub jumped: u64,
}

/// A tenure that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it stood.
    pub current: Current,
    /// Why.
    pub reason: EndReason,
    /// Its end time, had it not been ended before.
    pub end: StoreTime,
    /// When it ended.
    pub at: StoreTime,
}

/// The account.
#[derive(Debug, Clone, Default)]
pub struct Shadow {
    /// The store's time of the last step that wrote.
    pub last_step: Option<StoreTime>,
    /// The latest time that the store's clock showed to a step that wrote.
    pub latest: StoreTime,
    /// When everyone's full ttl began last.
    pub resumed_at: StoreTime,
    /// How far the store's clock had jumped forward by then, in microseconds.
    pub jumped_at_resume: u64,
    /// Current tenures.
    pub current: BTreeMap<MemberId, Current>,
    /// Tenures that ended.
    pub ended: BTreeMap<TenureId, Ended>,
    /// Who owns what.
    pub claims: BTreeMap<(RegistryName, Key), TenureId>,
    /// Who holds what, with which token.
    pub leases: BTreeMap<LeaseName, (TenureId, Token)>,
    /// The newest event.
    pub last_event: EventId,
    /// The brake is engaged.
    pub braked: bool,
    /// Until when the group is inside a grace period.
    pub unsettled_until: Option<StoreTime>,
}

impl Shadow {
    /// Everyone's full ttl begins.
    pub fn resume(&mut self, at: StoreTime, jumped: u64) {
        if at != self.resumed_at {
            self.resumed_at = at;
            self.jumped_at_resume = jumped;
        }
    }

    /// Whether the store did not serve before this instant: nobody had stepped for longer than the gap, or its clock
    /// fell back, or it has never served.
    #[must_use]
    pub fn silent(&self, now: StoreTime, gap: Duration) -> bool {
        self.last_step.is_none_or(|last| now < last || now.since(last) > gap)
    }

    /// The tenure, when it is its member's current one.
    #[must_use]
    pub fn current(&self, tenure: &TenureId) -> Option<&Current> {
        let current = self.current.get(tenure.member());
        current.filter(|current| current.tenure == *tenure)
    }

    /// The end time of a current tenure, if everyone's full ttl began at `resumed_at`.
    #[must_use]
    pub fn end_of(current: &Current, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        let graced = resumed_at + current.ttl;
        if current.renewed_at > now {
            // Its beat came before the clock fell back: only the full ttl since then counts.
            graced
        } else {
            graced.max(current.renewed_at + current.ttl)
        }
    }

    /// Whether the tenure is alive at this instant.
    #[must_use]
    pub fn is_alive(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> bool {
        let current = self.current(tenure);
        current.is_some_and(|current| now < Self::end_of(current, resumed_at, now))
    }

    /// For reads, which write nothing: a silence that no step has noticed yet counts as noticed now.
    #[must_use]
    pub fn resumed_for_reading(&self, now: StoreTime, gap: Duration) -> StoreTime {
        if self.silent(now, gap) { now } else { self.resumed_at }
    }
}
