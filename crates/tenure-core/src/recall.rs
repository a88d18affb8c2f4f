//! Whether a store is whole or may have forgotten, and until when it grants no lease because of that.
//!
//! A store that may have forgotten who holds a lease grants none until the trust of every holder that it can have forgotten
//! is over: the longest ttl that was allowed or served. [`Recall`] is that rule for all stores; a store keeps it where it keeps
//! its data, so that a restart neither shortens the wait nor begins it again. Valkey's form of it is in Lua, and the
//! conformance suite holds it to this one.

use std::fmt;
use std::time::Duration;

use crate::settling::GapCause;
use crate::sweep::Unsettled;
use crate::time::StoreTime;

/// What made a store doubt that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// It was empty.
    New,
    /// The record of what it must contain is missing.
    Unmarked,
    /// That record is about another file.
    Replaced,
    /// It lacks commits that were recorded.
    Older,
    /// Its log lacks commits that were recorded.
    CutShort,
    /// A member named a number that it never gave out.
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

    /// The name under which a store keeps it.
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

    /// From the name under which a store keeps it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|doubt| doubt.as_str() == name)
    }

    /// The cause that its groups show. Only known losses count as data loss: something was there that may have been held.
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
            Self::Proven => "a member named a number that this file never gave out: it is an older copy",
        })
    }
}

/// Whether a store that lacks something may have had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recall {
    /// It is whole: what it does not have, it never had.
    #[default]
    Whole,
    /// It may have forgotten everything. Its wait begins with the first step.
    Unborn,
    /// It may have forgotten something, and grants no lease before this time.
    Doubtful {
        /// Why.
        doubt: Doubt,
        /// When the wait ends.
        until: StoreTime,
    },
}

impl Recall {
    /// From what a store has kept, unless that wait is over.
    #[must_use]
    pub fn restored(kept: Option<(Doubt, StoreTime)>, now: StoreTime) -> Self {
        match kept {
            Some((doubt, until)) if now < until => Self::Doubtful { doubt, until },
            _ => Self::Whole,
        }
    }

    /// What a store has to keep: nothing while it is whole.
    #[must_use]
    pub fn kept(self) -> Option<(Doubt, StoreTime)> {
        match self {
            Self::Doubtful { doubt, until } => Some((doubt, until)),
            Self::Whole | Self::Unborn => None,
        }
    }

    /// Begins a wait, or extends the one that runs. `longest` is how long a lease that is forgotten may still be trusted: the
    /// longest ttl that was ever allowed or served.
    pub fn doubt(&mut self, doubt: Doubt, now: StoreTime, longest: Duration) {
        let before = self.kept().map_or(StoreTime::ZERO, |(_, until)| until);
        let until = before.max(now + longest);
        *self = Self::Doubtful { doubt, until };
    }

    /// Why and until when no lease may be granted, if that is later than now. The first call fixes the birth of the store.
    pub fn wait(&mut self, now: StoreTime, longest: Duration) -> Option<Unsettled> {
        if *self == Self::Unborn {
            self.doubt(Doubt::New, now, longest);
        }
        let (doubt, until) = self.kept()?;
        let cause = doubt.cause();
        (now < until).then_some(Unsettled { cause, until })
    }

    /// An operator's word that nothing was held ends the wait for groups to come, if it is for this cause.
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

/// Whether a store that can lose its newest writes believes a beat that names a number which it never gave out. Any caller
/// that may beat can send such a number, so one is believed in two max ttls: it lengthens every life once, and keeps no
/// member alive for ever. `believed_at` is when one was believed last.
#[must_use]
pub fn believes_a_lost_tail(believed_at: Option<StoreTime>, now: StoreTime, max_ttl: Duration) -> bool {
    believed_at.is_none_or(|at| now < at || now.since(at) >= max_ttl * 2)
}

/// Whether a store that cannot fail over believes such a beat: a file in service does not lose its tail, so only a start can
/// have brought an older copy. One is believed, within one max ttl of the start. `started_at` is `None` after that one.
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
        assert_eq!(until(&mut recall, 150), Some(at(220)), "it was born once");
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
            "its time is of a clock that fell back"
        );
    }

    #[test]
    fn older_copy_is_believed_within_a_max_ttl_of_a_start() {
        assert!(believes_an_older_copy(Some(at(100)), at(219), s(120)));
        assert!(!believes_an_older_copy(Some(at(100)), at(220), s(120)));
        assert!(!believes_an_older_copy(None, at(100), s(120)));
    }
}
