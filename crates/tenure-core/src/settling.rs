//! Gaps: distinguishing an outage of the store from the death of a member.
//!
//! The evidence that a store served is its [`Pulse`]: one row of its own data, beaten on the path of a beat. A step that
//! would end a tenure or grant a lease, and a read that would show a member as dead, [`look`] at it. A hole between
//! two beats of the pulse restarts every ttl from **its end** (`resumed_at`), not from the step that finds it: a sweep
//! that comes late finds no hole, and extends no life. The conformance suite holds the implementation in Lua
//! (`pulse.lua`) to these functions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{StoreTime, micros};

/// The lengths of a silence that count as a gap. A group has one of them; see [`Level::of`].
pub const LEVELS: [Duration; 3] = [
    Duration::from_micros(416_666),
    Duration::from_micros(833_333),
    Duration::from_secs(2),
];

/// The longest silence that is never a gap, for any ttl.
pub const MAX_GAP: Duration = LEVELS[2];

/// How often a process beats the pulse.
pub const PULSE_EVERY: Duration = Duration::from_micros(138_888);

/// A level of [`LEVELS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

impl Level {
    /// The level of a group: the largest that is not above 5/12 of its smallest ttl.
    ///
    /// 5/12 is the rest of a ttl after the beat interval (1/3), the request timeout (1/6) and the margin (1/12), so an
    /// unnoticed pause costs no member a beat. Few levels, because the pulse keeps the end of the last hole for each.
    #[must_use]
    pub fn of(smallest_ttl: Option<Duration>) -> Self {
        // Whole microseconds, the resolution of store time, so that every store computes the same value.
        let most = smallest_ttl.map_or(MAX_GAP, |ttl| Duration::from_micros(micros(ttl * 5 / 12)));
        Self(LEVELS.iter().rposition(|level| *level <= most).unwrap_or(0))
    }

    /// The longest silence that is not a gap for groups of this level.
    #[must_use]
    pub fn gap(self) -> Duration {
        LEVELS[self.0]
    }
}

/// The longest silence of the store that is not a gap for a group with this smallest ttl.
#[must_use]
pub fn gap(smallest_ttl: Option<Duration>) -> Duration {
    Level::of(smallest_ttl).gap()
}

/// The pulse of a store: the proof that it took beats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// Rises whenever the history of the pulse breaks: it is new, it was lost, or the clock fell back.
    pub id: u64,
    /// Its last beat.
    pub tick: StoreTime,
    /// For each level, when the last hole longer than that ended.
    pub since: [StoreTime; 3],
    /// How long those holes were; zero for an unknown time.
    pub lasted: [Duration; 3],
}

impl Pulse {
    /// A pulse that begins now.
    #[must_use]
    pub fn begin(before: Option<Self>, now: StoreTime) -> Self {
        let id = before.map_or(0, |before| before.id.saturating_add(1));
        Self {
            id: id.max(now.micros()),
            tick: now,
            since: [now; 3],
            lasted: [Duration::ZERO; 3],
        }
    }

    /// One beat. The clock must be read after the pulse was locked: otherwise two processes look like a fall of the
    /// clock.
    #[must_use]
    pub fn beaten(before: Option<Self>, now: StoreTime) -> Self {
        let Some(mut pulse) = before.filter(|pulse| now >= pulse.tick) else {
            return Self::begin(before, now);
        };
        let silence = now.since(pulse.tick);
        // Another process was just here.
        if silence < PULSE_EVERY / 2 {
            return pulse;
        }
        for (nth, _) in LEVELS.iter().enumerate().filter(|(_, level)| silence > **level) {
            (pulse.since[nth], pulse.lasted[nth]) = (now, silence);
        }
        pulse.tick = now;
        pulse
    }
}

/// What a group knows about the service of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its last step.
    pub tick: StoreTime,
    /// The id of the pulse at its last look; `None` before the first.
    pub pulse: Option<u64>,
    /// When every ttl last restarted.
    pub resumed_at: StoreTime,
    /// When a beat for this group last failed although the store served others; zero for never.
    pub failed_at: StoreTime,
    /// Its level.
    pub level: Level,
}

/// A gap that a group has not met yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// When the store resumed: every ttl restarts from here.
    pub at: StoreTime,
    /// Silent, or the clock fell back.
    pub cause: GapCause,
    /// How long the store was silent, if that is known.
    pub silence: Option<Duration>,
}

impl Resume {
    fn now(now: StoreTime, last: StoreTime) -> Self {
        let cause = if now < last {
            GapCause::ClockBack
        } else {
            GapCause::Silent
        };
        Self {
            at: now,
            cause,
            silence: Some(now.since(last)),
        }
    }
}

/// Whether a beat that only renews needs no look: a gap would only lengthen lives and withhold grants.
#[must_use]
pub fn is_near(tick: StoreTime, now: StoreTime, level: Level) -> bool {
    tick <= now && now.since(tick) <= level.gap()
}

/// Looks for a gap that the group has not met, on the clock reading and the snapshot of the step.
///
/// A hole is compared with `resumed_at` and never with the tick of the group: a step of a sweep during a hole would hide
/// it. Without a pulse the group goes by its own tick.
#[must_use]
pub fn look(pulse: Option<&Pulse>, known: &Known, now: StoreTime) -> Option<Resume> {
    let Some(pulse) = pulse else {
        return (!is_near(known.tick, now, known.level)).then(|| Resume::now(now, known.tick));
    };
    // A hole that is still open, or that cannot be dated: the pulse of a lost tail may be in the future.
    if !is_near(pulse.tick, now, known.level) {
        return Some(Resume::now(now, pulse.tick));
    }
    let since = pulse.since[known.level.0];
    let is_unmet = known.pulse != Some(pulse.id) || since > known.resumed_at;
    let failed = Some(known.failed_at).filter(|at| *at > known.resumed_at && *at <= now);
    let at = is_unmet.then_some(since).max(failed)?;
    let silence = Some(pulse.lasted[known.level.0]).filter(|lasted| at == since && !lasted.is_zero());
    let cause = if now < known.tick {
        GapCause::ClockBack
    } else {
        GapCause::Silent
    };
    Some(Resume { at, cause, silence })
}

/// When every ttl last restarted, once a gap is met. A value in the future was written by a clock that has since fallen
/// back.
#[must_use]
pub fn resumed(before: StoreTime, at: StoreTime, now: StoreTime) -> StoreTime {
    if before > now { at } else { before.max(at) }
}

/// The cause of an unsettled group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The store did not serve: it was stopped, paused, unreachable, or refused beats.
    Silent,
    /// The store's clock fell back.
    ClockBack,
    /// The group's data is gone: the store was flushed or restarted empty.
    DataLoss,
    /// The tail of the data is gone: a beat had a term that the store never issued (failover to a lagging replica).
    TailLoss,
    /// The store is new or was emptied. A beat of an earlier member turns it into [`DataLoss`](Self::DataLoss).
    New,
}

impl GapCause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Silent, Self::ClockBack, Self::DataLoss, Self::TailLoss, Self::New];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::ClockBack => "clock_back",
            Self::DataLoss => "data_loss",
            Self::TailLoss => "tail_loss",
            Self::New => "new",
        }
    }

    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }

    /// The message that no lease is granted for this long, with the cause and what to do.
    #[must_use]
    pub fn why_no_lease(self, wait: Duration) -> String {
        let why = match self {
            Self::Silent => "the store was out of service",
            Self::ClockBack => "the clock of the store fell back",
            Self::DataLoss => "the store has lost its data, and with it who holds which lease",
            Self::TailLoss => "the store has lost its newest data",
            Self::New => "the store is new or was emptied",
        };
        let seconds = wait.as_millis().div_ceil(1000);
        let hint = match self {
            Self::New => "; if nothing was held in it before, run `tenure settle`",
            _ => "",
        };
        format!("{why}: leases are granted in {seconds} s{hint}")
    }

    /// Whether an operator's statement that nothing was held ends a grace with this cause: always for `New`, and for
    /// any other cause only if it is named, because leases may have been held.
    #[must_use]
    pub fn is_ended_by(self, named: Option<Self>) -> bool {
        self == named.unwrap_or(Self::New)
    }
}

/// The end time *E* of a tenure, `max(deadline, resumed_at + ttl)`: it lapses when the store's clock reaches it.
///
/// A deadline further away than its ttl and one smallest level predates a step back of the clock and is read as
/// `resumed_at + ttl`. So a step back needs no pass over all members. A shorter one may go unnoticed, so it must not
/// shorten a life.
#[must_use]
pub fn end_of(deadline: StoreTime, ttl: Duration, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
    let grace = resumed_at + ttl;
    if deadline > now + ttl + LEVELS[0] {
        grace
    } else {
        deadline.max(grace)
    }
}

#[cfg(test)]
mod tests;
