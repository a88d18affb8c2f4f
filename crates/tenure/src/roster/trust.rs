//! Whether the mirror of a roster can be trusted. Pure: the caller reports what happened.
//!
//! Reads come from a mirror while three conditions hold:
//!
//! - It was filled since its data was created. Otherwise any provider may be missing.
//! - Its highest version has not fallen below a version that this process knows it had. Otherwise it has lost the end
//!   of its data.
//! - The ledger's outbox was drained since this process last failed to reach the mirror. Otherwise a write of this or
//!   another process may be missing, and the mirror would admit a provider that an operator has just deactivated.
//!
//! At the start, and after the store was unreachable and has resumed, there is a fourth: the mirror was compared with
//! the ledger since. It may have lost the end of its data, and later writes by other processes would hide the loss.

use tenure_core::clock::Mono;
use tenure_core::ledger::Version;
use tenure_core::roster::MirrorStatus;
use tenure_core::time::StoreTime;

use super::status::Belief;

/// A period in which no call of the mirror failed. It ends with the next failure; the first is the default.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReachEpoch(u64);

/// Why the mirror needs a reconcile before the next regular one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileReason {
    /// It was not filled since its data was created; any process may fill it for all.
    Seed,
    /// It lost the end of its data: this process trusts it again only after a reconcile of its own.
    Own,
    /// It may have lost data: this process started, the mirror was unreachable, or the store had a gap. A reconcile by
    /// any process since then is enough.
    Since(StoreTime),
}

/// What this process knows about one mirror.
#[derive(Debug)]
pub(crate) struct Trust {
    reach_epoch: u64,
    drained: Option<u64>,
    /// Whether the mirror was filled, by the last stamp since the last failure.
    seeded: Option<bool>,
    /// The highest version that the mirror is known to have had.
    acked: Version,
    fell: bool,
    away: bool,
    /// Since when it is untrusted.
    untrusted_since: Option<Mono>,
    doubt: Doubt,
    resumed_at: Option<StoreTime>,
    /// Whether it must be compared before it is trusted.
    compare_first: bool,
    /// Whether a call failed since the last stamp.
    failed_since_stamp: bool,
}

/// Whether the mirror may have lost data that only a comparison can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// It may, since a time that is unknown until the next stamp.
    Undated,
    Since(StoreTime),
}

impl Trust {
    /// The state at the start of the process: untrusted.
    pub(crate) fn new(now: Mono) -> Self {
        Self {
            reach_epoch: 0,
            drained: None,
            seeded: None,
            acked: Version::NONE,
            fell: false,
            away: false,
            untrusted_since: Some(now),
            doubt: Doubt::Undated,
            resumed_at: None,
            compare_first: true,
            failed_since_stamp: false,
        }
    }

    /// Whether reads may come from the mirror.
    pub(crate) fn is_believed(&self) -> bool {
        self.seeded == Some(true) && !self.fell && !self.away && !self.compare_first && !self.needs_drain()
    }

    /// The same for the status.
    pub(crate) fn belief(&self) -> Belief {
        match self.is_believed() {
            true => Belief::Mirror,
            false if self.away || self.seeded == Some(true) => Belief::Ledger,
            // Never filled, or no stamp read yet.
            false if self.seeded == Some(false) || self.resumed_at.is_none() => Belief::Seeding,
            false => Belief::Ledger,
        }
    }

    /// Whether the last call failed. Then only the sync loop calls the mirror.
    pub(crate) fn is_away(&self) -> bool {
        self.away
    }

    /// Since when it is untrusted; `None` while it is trusted.
    pub(crate) fn untrusted_since(&self) -> Option<Mono> {
        self.untrusted_since
    }

    /// Why it needs a reconcile now; `None` while it is unreachable.
    pub(crate) fn reconcile_reason(&self) -> Option<ReconcileReason> {
        match (self.away, self.seeded, self.doubt) {
            (true, _, _) | (_, None, _) => None,
            (_, Some(false), _) => Some(ReconcileReason::Seed),
            _ if self.fell => Some(ReconcileReason::Own),
            (_, _, Doubt::Since(since)) => Some(ReconcileReason::Since(since)),
            _ => None,
        }
    }

    /// Whether the outbox must be drained before it is trusted.
    pub(crate) fn needs_drain(&self) -> bool {
        self.drained != Some(self.reach_epoch)
    }

    /// Whether it is reachable and the outbox is the only reason for distrust.
    pub(crate) fn waits_for_drain(&self) -> bool {
        !self.away && self.needs_drain()
    }

    /// The current reach epoch; take it before a drain.
    pub(crate) fn reach_epoch(&self) -> ReachEpoch {
        ReachEpoch(self.reach_epoch)
    }

    /// The highest version that the mirror is known to have had. Take it before a call whose stamp is then
    /// [observed](Self::observe).
    pub(crate) fn acked(&self) -> Version {
        self.acked
    }

    /// A call of the mirror failed.
    pub(crate) fn failed(&mut self, now: Mono) {
        self.reach_epoch += 1;
        self.away = true;
        self.failed_since_stamp = true;
        self.seeded = None;
        self.doubt = Doubt::Undated;
        self.update_untrusted_since(now);
    }

    /// A write was not sent to the mirror: a drain that began earlier may lack it.
    pub(crate) fn missed(&mut self, now: Mono) {
        self.reach_epoch += 1;
        self.update_untrusted_since(now);
    }

    /// A call without a stamp succeeded.
    pub(crate) fn answered(&mut self, now: Mono) {
        self.away = false;
        self.update_untrusted_since(now);
    }

    /// The mirror has this version.
    pub(crate) fn ack(&mut self, version: Version) {
        self.acked = self.acked.max(version);
    }

    /// A reply carried this stamp; `acked` was taken before the call. Returns whether the reply can be trusted.
    pub(crate) fn observe(&mut self, stamp: &MirrorStatus, acked: Version, now: Mono) -> bool {
        self.away = false;
        self.seeded = Some(stamp.seeded);
        if stamp.seeded {
            self.fell |= stamp.high < acked;
            self.acked = self.acked.max(stamp.high);
        } else {
            // New data: filling it brings everything.
            self.acked = stamp.high;
            self.fell = false;
        }
        let resumed = self.resumed_at.is_some_and(|at| at != stamp.resumed_at);
        if self.doubt == Doubt::Undated || resumed {
            self.doubt = Doubt::Since(stamp.as_of);
        }
        self.compare_first |= resumed && self.failed_since_stamp;
        self.failed_since_stamp = false;
        self.resumed_at = Some(stamp.resumed_at);
        self.update_untrusted_since(now);
        self.is_believed()
    }

    /// The outbox was drained, beginning in this reach epoch.
    pub(crate) fn drained(&mut self, reach_epoch: ReachEpoch, now: Mono) {
        if reach_epoch.0 == self.reach_epoch {
            self.drained = Some(reach_epoch.0);
        }
        self.update_untrusted_since(now);
    }

    /// This process has finished a reconcile, after which the mirror returned this stamp. Earlier knowledge no longer
    /// applies.
    pub(crate) fn reconciled(&mut self, stamp: &MirrorStatus, now: Mono) {
        self.away = false;
        self.seeded = Some(stamp.seeded);
        self.acked = stamp.high;
        self.fell = false;
        self.doubt = Doubt::None;
        self.compare_first = false;
        self.resumed_at = Some(stamp.resumed_at);
        self.update_untrusted_since(now);
    }

    /// Another process finished a reconcile at this time.
    pub(crate) fn reconciled_elsewhere(&mut self, done_at: StoreTime, now: Mono) {
        if matches!(self.doubt, Doubt::Since(since) if done_at >= since) {
            self.doubt = Doubt::None;
            self.compare_first = false;
        }
        self.update_untrusted_since(now);
    }

    fn update_untrusted_since(&mut self, now: Mono) {
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

    fn stamp(seeded: bool, high: u64) -> MirrorStatus {
        MirrorStatus {
            seeded,
            high: Version(high),
            settings: Version::NONE,
            resumed_at: StoreTime::from_micros(1),
            as_of: StoreTime::from_micros(100),
        }
    }

    /// Trusted since second 1, with version 10.
    fn believed() -> Trust {
        let mut trust = Trust::new(at(0));
        assert!(!trust.observe(&stamp(true, 10), Version::NONE, at(0)));
        trust.drained(trust.reach_epoch(), at(1));
        assert!(!trust.is_believed(), "no reconcile since it started");
        trust.reconciled_elsewhere(StoreTime::from_micros(99), at(1));
        assert!(!trust.is_believed());
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(1));
        assert!(trust.is_believed());
        trust
    }

    #[test]
    fn trust_requires_a_filled_mirror_and_a_drained_outbox() {
        let mut trust = Trust::new(at(0));
        trust.drained(trust.reach_epoch(), at(0));
        assert!(!trust.is_believed());
        assert!(!trust.observe(&stamp(false, 10), Version::NONE, at(0)));
        assert_eq!(
            (trust.belief(), trust.reconcile_reason()),
            (Belief::Seeding, Some(ReconcileReason::Seed))
        );
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(0));
        assert!(trust.observe(&stamp(true, 10), Version::NONE, at(1)));
        assert_eq!((trust.belief(), trust.untrusted_since()), (Belief::Mirror, None));
    }

    #[test]
    fn failure_ends_trust_until_a_later_drain() {
        let mut trust = believed();
        let before = trust.reach_epoch();
        trust.failed(at(2));
        assert_eq!((trust.belief(), trust.untrusted_since()), (Belief::Ledger, Some(at(2))));
        assert_eq!(
            trust.reconcile_reason(),
            None,
            "an unreachable mirror cannot be compared"
        );
        trust.drained(before, at(3));
        assert!(
            !trust.observe(&stamp(true, 10), trust.acked(), at(3)),
            "that drain began before the failure"
        );
        trust.drained(trust.reach_epoch(), at(4));
        assert!(trust.is_believed());
        assert_eq!(
            trust.reconcile_reason(),
            Some(ReconcileReason::Since(StoreTime::from_micros(100)))
        );
        trust.reconciled_elsewhere(StoreTime::from_micros(99), at(4));
        assert!(trust.reconcile_reason().is_some());
        trust.reconciled_elsewhere(StoreTime::from_micros(100), at(4));
        assert_eq!(trust.reconcile_reason(), None);
    }

    #[test]
    fn version_regression_ends_trust_until_own_reconcile() {
        let mut trust = believed();
        let acked = trust.acked();
        trust.ack(Version(12));
        assert!(
            trust.observe(&stamp(true, 11), acked, at(2)),
            "the call was sent before version 12 was acknowledged"
        );
        assert!(!trust.observe(&stamp(true, 11), trust.acked(), at(2)));
        assert!(
            !trust.observe(&stamp(true, 20), trust.acked(), at(3)),
            "the lost rows are still missing"
        );
        assert_eq!(
            (trust.belief(), trust.reconcile_reason()),
            (Belief::Ledger, Some(ReconcileReason::Own))
        );
        trust.reconciled_elsewhere(StoreTime::from_micros(1_000), at(4));
        assert_eq!(trust.reconcile_reason(), Some(ReconcileReason::Own));
        trust.reconciled(&stamp(true, 11), at(4));
        assert!(trust.is_believed());
        assert!(trust.observe(&stamp(true, 11), trust.acked(), at(4)));
    }

    #[test]
    fn complete_data_loss_requests_seeding() {
        let mut trust = believed();
        assert!(!trust.observe(&stamp(false, 0), trust.acked(), at(2)));
        assert_eq!(trust.reconcile_reason(), Some(ReconcileReason::Seed));
        assert!(trust.observe(&stamp(true, 9), trust.acked(), at(3)));
    }

    #[test]
    fn gap_requests_a_reconcile_and_keeps_trust() {
        let mut trust = believed();
        trust.reconciled(&stamp(true, 10), at(1));
        let resumed = MirrorStatus {
            resumed_at: StoreTime::from_micros(2),
            ..stamp(true, 10)
        };
        assert!(trust.observe(&resumed, trust.acked(), at(2)));
        assert_eq!(
            trust.reconcile_reason(),
            Some(ReconcileReason::Since(StoreTime::from_micros(100)))
        );
    }

    /// Its replica may lack the end of the data, and other processes may have written more since.
    #[test]
    fn resumed_store_is_compared_before_it_is_trusted() {
        let mut trust = believed();
        trust.failed(at(2));
        let resumed = MirrorStatus {
            resumed_at: StoreTime::from_micros(2),
            ..stamp(true, 99)
        };
        assert!(!trust.observe(&resumed, trust.acked(), at(3)));
        trust.drained(trust.reach_epoch(), at(3));
        assert!(!trust.observe(&resumed, trust.acked(), at(3)));
        assert_eq!(
            trust.reconcile_reason(),
            Some(ReconcileReason::Since(StoreTime::from_micros(100)))
        );
        trust.reconciled(&resumed, at(4));
        assert!(trust.is_believed());
    }
}
