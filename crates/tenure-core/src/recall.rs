//! Whether a store is whole or may have forgotten grants, and how long it grants no lease because of that.
//!
//! A store that may have forgotten the holder of a lease grants none until every such holder's trust is over: the
//! longest ttl ever allowed or served. [`Recall`] is this rule for all stores. A store persists it with its data, so
//! that a restart neither shortens nor restarts the wait. Valkey implements it in Lua; the conformance suite holds that
//! to this one.

use std::fmt;
use std::time::Duration;

use crate::settling::GapCause;
use crate::sweep::Unsettled;
use crate::time::StoreTime;

/// Why a store doubts that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// It was empty.
    New,
    /// The record of its required content is missing.
    Unmarked,
    /// The record describes another file.
    Replaced,
    /// Recorded commits are missing.
    Older,
    /// Recorded commits are missing from its log.
    CutShort,
    /// A member presented a number that the store never issued.
    Proven,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::New,
        Self::Unmarked,
        Self::Replaced,
        Self::Older,
        Self::CutShort,
        Self::Proven,
    ];

    /// The persisted name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Unmarked => "unmarked",
            Self::Replaced => "replaced",
            Self::Older => "older",
            Self::CutShort => "cut_short",
            Self::Proven => "proven",
        }
    }

    /// Parses the persisted name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|doubt| doubt.as_str() == name)
    }

    /// The cause that its groups show. Only a known loss is a data loss, because leases may have been held.
    #[must_use]
    pub fn cause(self) -> GapCause {
        match self {
            Self::New | Self::Unmarked | Self::Replaced => GapCause::New,
            Self::Older | Self::CutShort | Self::Proven => GapCause::DataLoss,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new or emptied store",
            Self::Unmarked => "the mark beside the file is missing or unreadable, so it may be an older copy",
            Self::Replaced => "the file is not the one that was served last, so it may be an older copy",
            Self::Older => "the file is older than what was served last",
            Self::CutShort => "the log of the file was lost or cut short: its last commits are missing",
            Self::Proven => "a member presented a number that this file never issued: it is an older copy",
        })
    }
}

/// Whether a store is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recall {
    /// It is whole: whatever it lacks never existed.
    #[default]
    Whole,
    /// It may have forgotten everything. The wait begins with its first step.
    Unborn,
    /// It may have forgotten something, and grants no lease before this time.
    Doubtful {
        /// The reason.
        doubt: Doubt,
        /// The end of the wait.
        until: StoreTime,
    },
}

impl Recall {
    /// Restores the persisted state, unless its wait is over.
    #[must_use]
    pub fn restored(kept: Option<(Doubt, StoreTime)>, now: StoreTime) -> Self {
        match kept {
            Some((doubt, until)) if now < until => Self::Doubtful { doubt, until },
            _ => Self::Whole,
        }
    }

    /// The state to persist; `None` if the store is whole.
    #[must_use]
    pub fn kept(self) -> Option<(Doubt, StoreTime)> {
        match self {
            Self::Doubtful { doubt, until } => Some((doubt, until)),
            Self::Whole | Self::Unborn => None,
        }
    }

    /// Begins or extends a wait. `longest` is how long a forgotten lease may still be trusted: the longest ttl ever
    /// allowed or served.
    pub fn doubt(&mut self, doubt: Doubt, now: StoreTime, longest: Duration) {
        let before = self.kept().map_or(StoreTime::ZERO, |(_, until)| until);
        let until = before.max(now + longest);
        *self = Self::Doubtful { doubt, until };
    }

    /// The cause and end of the current wait, if any. The first call sets the birth time of the store.
    pub fn wait(&mut self, now: StoreTime, longest: Duration) -> Option<Unsettled> {
        if *self == Self::Unborn {
            self.doubt(Doubt::New, now, longest);
        }
        let (doubt, until) = self.kept()?;
        let cause = doubt.cause();
        (now < until).then_some(Unsettled { cause, until })
    }

    /// Ends the wait for later groups, on an operator's statement that nothing was held, if the cause matches.
    pub fn settle(&mut self, named: Option<GapCause>) {
        let cause = match *self {
            Self::Whole => return,
            Self::Unborn => Doubt::New.cause(),
            Self::Doubtful { doubt, .. } => doubt.cause(),
        };
        if cause.is_ended_by(named) {
            *self = Self::Whole;
        }
    }
}

/// Whether a store that can lose its newest writes believes a beat with a number it never issued. Any caller that may
/// beat can send one, so the store believes one per two max ttls: that extends every ttl once and keeps no member alive
/// forever. `believed_at` is the time of the last one.
#[must_use]
pub fn believes_a_lost_tail(believed_at: Option<StoreTime>, now: StoreTime, max_ttl: Duration) -> bool {
    believed_at.is_none_or(|at| now < at || now.since(at) >= max_ttl * 2)
}

/// Whether a store that cannot fail over believes such a beat. Its file does not lose its tail in service, so only a
/// start can have opened an older copy. The store believes one, within one max ttl of the start; `started_at` is `None`
/// after it.
#[must_use]
pub fn believes_an_older_copy(started_at: Option<StoreTime>, now: StoreTime, max_ttl: Duration) -> bool {
    started_at.is_some_and(|at| now < at + max_ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }
    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
    fn until(recall: &mut Recall, now: u64) -> Option<StoreTime> {
        recall.wait(at(now), s(120)).map(|wait| wait.until)
    }

    #[test]
    fn unborn_store_waits_from_its_first_step() {
        let mut recall = Recall::Unborn;
        assert_eq!(until(&mut recall, 100), Some(at(220)));
        assert_eq!(until(&mut recall, 150), Some(at(220)), "the birth time is set once");
        assert_eq!(until(&mut recall, 220), None);
        assert_eq!(Recall::Whole.wait(at(100), s(120)), None);
    }

    #[test]
    fn later_doubt_never_shortens_the_wait() {
        let mut recall = Recall::Whole;
        recall.doubt(Doubt::New, at(100), s(120));
        recall.doubt(Doubt::Proven, at(110), s(30));
        let wait = recall.wait(at(110), s(120)).unwrap();
        assert_eq!((wait.cause, wait.until), (GapCause::DataLoss, at(220)));
        recall.doubt(Doubt::Older, at(200), s(120));
        assert_eq!(until(&mut recall, 200), Some(at(320)));
    }

    #[test]
    fn kept_wait_survives_a_restart_until_it_is_over() {
        let mut recall = Recall::Unborn;
        assert_eq!(recall.kept(), None);
        recall.doubt(Doubt::Unmarked, at(100), s(120));
        assert_eq!(Recall::restored(recall.kept(), at(219)), recall);
        assert_eq!(Recall::restored(recall.kept(), at(220)), Recall::Whole);
        for doubt in Doubt::ALL {
            assert_eq!(Doubt::parse(doubt.as_str()), Some(doubt));
        }
    }

    #[test]
    fn settle_ends_only_the_cause_it_names() {
        for (doubt, named, ends) in [
            (Doubt::New, None, true),
            (Doubt::Replaced, Some(GapCause::New), true),
            (Doubt::Older, None, false),
            (Doubt::Older, Some(GapCause::New), false),
            (Doubt::Older, Some(GapCause::DataLoss), true),
        ] {
            let mut recall = Recall::Whole;
            recall.doubt(doubt, at(100), s(120));
            recall.settle(named);
            assert_eq!(recall == Recall::Whole, ends, "{doubt:?} {named:?}");
        }
        let mut unborn = Recall::Unborn;
        unborn.settle(None);
        assert_eq!(unborn, Recall::Whole);
    }

    #[test]
    fn lost_tail_is_believed_once_in_two_max_ttls() {
        assert!(believes_a_lost_tail(None, at(100), s(120)));
        assert!(!believes_a_lost_tail(Some(at(100)), at(100), s(120)));
        assert!(!believes_a_lost_tail(Some(at(100)), at(339), s(120)));
        assert!(believes_a_lost_tail(Some(at(100)), at(340), s(120)));
        assert!(
            believes_a_lost_tail(Some(at(100)), at(99), s(120)),
            "its time predates a step back of the clock"
        );
    }

    #[test]
    fn older_copy_is_believed_within_a_max_ttl_of_a_start() {
        assert!(believes_an_older_copy(Some(at(100)), at(219), s(120)));
        assert!(!believes_an_older_copy(Some(at(100)), at(220), s(120)));
        assert!(!believes_an_older_copy(None, at(100), s(120)));
    }
}
