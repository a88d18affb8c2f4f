//! Whether the mirror of a roster may be believed. Pure: it is told what happened.
//!
//! A mirror is believed while three things hold. It says that it was filled in this life of its data (else it may lack
//! anybody). Its highest version has not fallen below one that this process knows it had (else the end of its data is
//! gone). And the outbox of the ledger was drained since this process last failed to reach it (else what was written
//! meanwhile, here or elsewhere, may not be there: the mirror would let in whom an operator has just shut out).

use tenure_core::clock::Mono;
use tenure_core::ledger::Version;
use tenure_core::roster::Stamp;

use super::status::Belief;

/// A stretch of reaching the mirror without a failure. Ends with the next failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reach(u64);

/// What is known of one mirror.
#[derive(Debug)]
pub(crate) struct Trust {
    reach: u64,
    drained: Option<u64>,
    seeded: bool,
    /// The highest version that this process knows the mirror to have had.
    acked: Version,
    fell: bool,
    away: bool,
    /// Since when it has not been believed.
    since: Option<Mono>,
}

impl Trust {
    /// Nothing is known.
    pub(crate) fn new(now: Mono) -> Self {
        Self {
            reach: 0,
            drained: None,
            seeded: false,
            acked: Version::NONE,
            fell: false,
            away: false,
            since: Some(now),
        }
    }

    /// Whether to believe it.
    pub(crate) fn is_believed(&self) -> bool {
        self.seeded && !self.fell && !self.away && self.drained == Some(self.reach)
    }

    /// The same in words.
    pub(crate) fn belief(&self) -> Belief {
        match self.is_believed() {
            true => Belief::Mirror,
            false if !self.away && !self.seeded => Belief::Seeding,
            false => Belief::Ledger,
        }
    }

    /// Whether the last call failed.
    pub(crate) fn is_away(&self) -> bool {
        self.away
    }

    /// Since when it has not been believed; `None` while it is.
    pub(crate) fn untrusted_since(&self) -> Option<Mono> {
        self.since
    }

    /// Whether only a comparison of everything can bring belief back.
    pub(crate) fn needs_reconcile(&self) -> bool {
        !self.away && (!self.seeded || self.fell)
    }

    /// Whether the outbox has to be drained before it is believed.
    pub(crate) fn needs_drain(&self) -> bool {
        self.drained != Some(self.reach)
    }

    /// The stretch that a drain begins in.
    pub(crate) fn reach(&self) -> Reach {
        Reach(self.reach)
    }

    /// The highest version known to have been there: to be taken before a call is sent whose stamp is then
    /// [observed](Self::observe).
    pub(crate) fn acked(&self) -> Version {
        self.acked
    }

    /// A call failed.
    pub(crate) fn failed(&mut self, now: Mono) {
        self.reach += 1;
        self.away = true;
        self.settle(now);
    }

    /// A call was answered without a stamp.
    pub(crate) fn answered(&mut self, now: Mono) {
        self.away = false;
        self.settle(now);
    }

    /// The mirror has this version.
    pub(crate) fn ack(&mut self, version: Version) {
        self.acked = self.acked.max(version);
    }

    /// A reply told this about the mirror; `acked` is from before its call was sent. Answers whether the reply is to be
    /// believed.
    pub(crate) fn observe(&mut self, stamp: &Stamp, acked: Version, now: Mono) -> bool {
        self.away = false;
        self.seeded = stamp.seeded;
        // A reply that was overtaken by a newer one, which told of a fall, must not take that back.
        self.fell = stamp.high < acked || (self.fell && stamp.high < self.acked);
        self.acked = self.acked.max(stamp.high);
        self.settle(now);
        self.is_believed()
    }

    /// The outbox was drained, by somebody who began in this stretch.
    pub(crate) fn drained(&mut self, reach: Reach, now: Mono) {
        if reach.0 == self.reach {
            self.drained = Some(reach.0);
        }
        self.settle(now);
    }

    /// Everything was compared, and this is what the mirror said after it: what was known from before counts no more.
    pub(crate) fn reconciled(&mut self, stamp: &Stamp, now: Mono) {
        self.away = false;
        self.seeded = stamp.seeded;
        self.acked = stamp.high;
        self.fell = false;
        self.settle(now);
    }

    fn settle(&mut self, now: Mono) {
        self.since = match self.is_believed() {
            true => None,
            false => self.since.or(Some(now)),
        };
    }
}
