//! Whether the mirror of a roster may be believed. Pure: it is told what happened.
//!
//! A mirror is believed while three things hold. It says that it was filled in this life of its data (else it may lack
//! anybody). Its highest version has not fallen below one that this process knows it had (else the end of its data is
//! gone). And the outbox of the ledger was drained since this process last failed to reach it (else what was written
//! meanwhile, here or elsewhere, may not be there: the mirror would let in whom an operator has just shut out).
//!
//! One thing more at the start, and when the store was out of reach and resumed meanwhile: it has been compared with the
//! ledger since. It may have lost the end of its data, and what others have written since would hide that.

use tenure_core::clock::Mono;
use tenure_core::ledger::Version;
use tenure_core::roster::Stamp;
use tenure_core::time::StoreTime;

use super::status::Belief;

/// A stretch of reaching the mirror without a failure. Ends with the next failure; the first is the default.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reach(u64);

/// Why the mirror should be compared with the ledger out of turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It was never filled in this life of its data; whoever fills it does it for all.
    Seed,
    /// It lost the end of its data: this process has to compare by itself before it believes again, whoever else did.
    Own,
    /// Something happened that may have cost it something: this process came, the mirror was away, the store did not serve.
    /// Done when anybody has compared since then.
    Since(StoreTime),
}

/// What is known of one mirror.
#[derive(Debug)]
pub(crate) struct Trust {
    reach: u64,
    drained: Option<u64>,
    /// Whether there was a stamp since the last failure, and what it said about being filled.
    seeded: Option<bool>,
    /// The highest version that this process knows the mirror to have had.
    acked: Version,
    fell: bool,
    away: bool,
    /// Since when it has not been believed.
    untrusted_since: Option<Mono>,
    doubt: Doubt,
    resumed_at: Option<StoreTime>,
    /// Whether it is to be compared before it is believed.
    compare_first: bool,
    /// Whether a call failed since the last stamp.
    lost_touch: bool,
}

/// Whether something happened that only a comparison can tell the harm of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Yes, and the store has not told its time since.
    Undated,
    Since(StoreTime),
}

impl Trust {
    /// Nothing is known.
    pub(crate) fn new(now: Mono) -> Self {
        Self {
            reach: 0,
            drained: None,
            seeded: None,
            acked: Version::NONE,
            fell: false,
            away: false,
            untrusted_since: Some(now),
            doubt: Doubt::Undated,
            resumed_at: None,
            compare_first: true,
            lost_touch: false,
        }
    }

    /// Whether to believe it.
    pub(crate) fn is_believed(&self) -> bool {
        self.seeded == Some(true) && !self.fell && !self.away && !self.compare_first && !self.needs_drain()
    }

    /// The same in words.
    pub(crate) fn belief(&self) -> Belief {
        match self.is_believed() {
            true => Belief::Mirror,
            false if self.away || self.seeded == Some(true) => Belief::Ledger,
            // Never filled, or not looked at yet.
            false if self.seeded == Some(false) || self.resumed_at.is_none() => Belief::Seeding,
            false => Belief::Ledger,
        }
    }

    /// Whether the last call failed. Then nobody waits for another but who looks whether it is back.
    pub(crate) fn is_away(&self) -> bool {
        self.away
    }

    /// Since when it has not been believed; `None` while it is.
    pub(crate) fn untrusted_since(&self) -> Option<Mono> {
        self.untrusted_since
    }

    /// Whether it should be compared with the ledger out of turn; `None` while it cannot be reached.
    pub(crate) fn wish(&self) -> Option<Wish> {
        match (self.away, self.seeded, self.doubt) {
            (true, _, _) | (_, None, _) => None,
            (_, Some(false), _) => Some(Wish::Seed),
            _ if self.fell => Some(Wish::Own),
            (_, _, Doubt::Since(since)) => Some(Wish::Since(since)),
            _ => None,
        }
    }

    /// Whether the outbox has to be drained before it is believed.
    pub(crate) fn needs_drain(&self) -> bool {
        self.drained != Some(self.reach)
    }

    /// Whether nothing but that keeps it from being read again.
    pub(crate) fn waits_for_drain(&self) -> bool {
        !self.away && self.needs_drain()
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
        self.lost_touch = true;
        self.seeded = None;
        self.doubt = Doubt::Undated;
        self.settle(now);
    }

    /// Something was written in the ledger and not even sent to the mirror: no drain that began before has it.
    pub(crate) fn missed(&mut self, now: Mono) {
        self.reach += 1;
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
        self.seeded = Some(stamp.seeded);
        if stamp.seeded {
            self.fell |= stamp.high < acked;
            self.acked = self.acked.max(stamp.high);
        } else {
            // Another life of the data: who fills it brings everything.
            self.acked = stamp.high;
            self.fell = false;
        }
        let resumed = self.resumed_at.is_some_and(|at| at != stamp.resumed_at);
        if self.doubt == Doubt::Undated || resumed {
            self.doubt = Doubt::Since(stamp.as_of);
        }
        self.compare_first |= resumed && self.lost_touch;
        self.lost_touch = false;
        self.resumed_at = Some(stamp.resumed_at);
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

    /// This process has compared everything, and this is what the mirror said after it: what was known from before counts
    /// no more.
    pub(crate) fn reconciled(&mut self, stamp: &Stamp, now: Mono) {
        self.away = false;
        self.seeded = Some(stamp.seeded);
        self.acked = stamp.high;
        self.fell = false;
        self.doubt = Doubt::None;
        self.compare_first = false;
        self.resumed_at = Some(stamp.resumed_at);
        self.settle(now);
    }

    /// Somebody else has compared everything, and was done then.
    pub(crate) fn reconciled_elsewhere(&mut self, done_at: StoreTime, now: Mono) {
        if matches!(self.doubt, Doubt::Since(since) if done_at >= since) {
            self.doubt = Doubt::None;
            self.compare_first = false;
        }
        self.settle(now);
    }

    fn settle(&mut self, now: Mono) {
        self.untrusted_since = match self.is_believed() {
            true => None,
            false => self.untrusted_since.or(Some(now)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secs;

    fn at(s: u64) -> Mono {
        Mono::from_origin(secs(s))
    }

    fn stamp(seeded: bool, high: u64) -> Stamp {
        Stamp {
            seeded,
            high: Version(high),
            settings: Version::NONE,
            resumed_at: StoreTime::from_micros(1),
            as_of: StoreTime::from_micros(100),
        }
    }

    /// Believed since second 1, with version 10.
    fn believed() -> Trust {
        let mut trust = Trust::new(at(0));
        assert!(!trust.observe(&stamp(true, 10), Version::NONE, at(0)));
        trust.drained(trust.reach(), at(1));
        assert!(!trust.is_believed(), "nobody has compared since it came");
        trust.reconciled_elsewhere(StoreTime::from_micros(99), at(1));
        assert!(!trust.is_believed());
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(1));
        assert!(trust.is_believed());
        trust
    }

    #[test]
    fn it_takes_a_filled_mirror_and_a_drained_outbox() {
        let mut trust = Trust::new(at(0));
        trust.drained(trust.reach(), at(0));
        assert!(!trust.is_believed());
        assert!(!trust.observe(&stamp(false, 10), Version::NONE, at(0)));
        assert_eq!((trust.belief(), trust.wish()), (Belief::Seeding, Some(Wish::Seed)));
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(0));
        assert!(trust.observe(&stamp(true, 10), Version::NONE, at(1)));
        assert_eq!((trust.belief(), trust.untrusted_since()), (Belief::Mirror, None));
    }

    #[test]
    fn a_failure_counts_until_the_outbox_is_drained_after_it() {
        let mut trust = believed();
        let before = trust.reach();
        trust.failed(at(2));
        assert_eq!((trust.belief(), trust.untrusted_since()), (Belief::Ledger, Some(at(2))));
        assert_eq!(trust.wish(), None, "nobody can compare with what is away");
        trust.drained(before, at(3));
        assert!(
            !trust.observe(&stamp(true, 10), trust.acked(), at(3)),
            "that one began before the failure"
        );
        trust.drained(trust.reach(), at(4));
        assert!(trust.is_believed());
        assert_eq!(trust.wish(), Some(Wish::Since(StoreTime::from_micros(100))));
        trust.reconciled_elsewhere(StoreTime::from_micros(99), at(4));
        assert!(trust.wish().is_some());
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(4));
        assert_eq!(trust.wish(), None);
    }

    #[test]
    fn a_version_that_falls_counts_until_this_process_has_compared() {
        let mut trust = believed();
        let acked = trust.acked();
        trust.ack(Version(12));
        assert!(
            trust.observe(&stamp(true, 11), acked, at(2)),
            "it was sent before 12 was there"
        );
        assert!(!trust.observe(&stamp(true, 11), trust.acked(), at(2)));
        assert!(
            !trust.observe(&stamp(true, 20), trust.acked(), at(3)),
            "what fell out is still missing"
        );
        assert_eq!((trust.belief(), trust.wish()), (Belief::Ledger, Some(Wish::Own)));
        trust.reconciled_elsewhere(StoreTime::from_micros(1_000), at(4));
        assert_eq!(trust.wish(), Some(Wish::Own));
        trust.reconciled(&stamp(true, 11), at(4));
        assert!(trust.is_believed());
        assert!(trust.observe(&stamp(true, 11), trust.acked(), at(4)));
    }

    #[test]
    fn data_that_is_gone_as_a_whole_is_another_life() {
        let mut trust = believed();
        assert!(!trust.observe(&stamp(false, 0), trust.acked(), at(2)));
        assert_eq!(trust.wish(), Some(Wish::Seed));
        assert!(trust.observe(&stamp(true, 9), trust.acked(), at(3)));
    }

    #[test]
    fn a_store_that_did_not_serve_is_compared_and_believed_meanwhile() {
        let mut trust = believed();
        trust.reconciled(&stamp(true, 10), at(1));
        let resumed = Stamp {
            resumed_at: StoreTime::from_micros(2),
            ..stamp(true, 10)
        };
        assert!(trust.observe(&resumed, trust.acked(), at(2)));
        assert_eq!(trust.wish(), Some(Wish::Since(StoreTime::from_micros(100))));
    }

    /// A replica may have taken its place that lacks the end, and others may have written more since.
    #[test]
    fn a_store_that_was_out_of_reach_and_resumed_is_compared_first() {
        let mut trust = believed();
        trust.failed(at(2));
        let resumed = Stamp {
            resumed_at: StoreTime::from_micros(2),
            ..stamp(true, 99)
        };
        assert!(!trust.observe(&resumed, trust.acked(), at(3)));
        trust.drained(trust.reach(), at(3));
        assert!(!trust.observe(&resumed, trust.acked(), at(3)));
        assert_eq!(trust.wish(), Some(Wish::Since(StoreTime::from_micros(100))));
        trust.reconciled(&resumed, at(4));
        assert!(trust.is_believed());
    }
}
