//! Calls about the service of a whole store: its pulse, and the groups in which something is due.

use std::time::Duration;

use crate::call::Limits;
use crate::error::Result;
use crate::id::Group;
use crate::settling::Pulse;
use crate::store::check_limit;
use crate::time::StoreTime;

/// How many groups with failed beats a pulse keeps. If there are more, it counts as a hole of the whole store.
pub const FAILED_GROUPS: usize = 1_000;

/// The time between visits to two groups in which nothing is due. A crowd of groups must not delay the dead of others.
pub const VISITS_APART: Duration = Duration::from_millis(5);

/// The pulse as a store of one process keeps it, beside its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptPulse {
    /// The pulse; `None` before its first beat.
    pub pulse: Option<Pulse>,
    /// A hole that ended at or before this instant lost no data: a whole store started. It restarts every ttl, and
    /// withholds no grant.
    pub whole_at: StoreTime,
}

impl KeptPulse {
    /// A start that is under way: nothing was beaten since, and the store has forgotten nothing.
    #[must_use]
    pub fn begun(now: StoreTime) -> Self {
        Self {
            pulse: Some(Pulse::begin(None, now)),
            whole_at: now,
        }
    }

    /// When the store last resumed after a hole of any length; `None` before the first beat.
    #[must_use]
    pub fn resumed_at(&self) -> Option<StoreTime> {
        self.pulse.map(|pulse| pulse.since[0])
    }

    /// One beat, which names this many groups with failed beats. Returns whether the pulse began again after a fall of the
    /// clock: due times may then be in the future by more than is possible.
    pub(crate) fn beat(&mut self, failed: usize, now: StoreTime) -> bool {
        let Some(before) = self.pulse else {
            *self = Self::begun(now);
            return false;
        };
        let mut pulse = Pulse::beaten(Some(before), now);
        if failed > FAILED_GROUPS {
            (pulse.since, pulse.lasted) = ([now; 3], [Duration::ZERO; 3]);
        }
        self.pulse = Some(pulse);
        pulse.id != before.id
    }
}

/// [`Store::beat_pulse`](crate::store::Store::beat_pulse) as a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BeatPulse {
    /// Groups of which a beat failed while the store served others.
    pub failed: Vec<Group>,
}

/// The reply to a beat of the pulse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pulsed {
    /// The store time of the reply.
    pub as_of: StoreTime,
    /// The parts of the store that keep no pulse, each with the reason: groups there go by their own ticks.
    pub without: Vec<String>,
}

/// [`Store::due`](crate::store::Store::due) as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListDue {
    /// How far ahead to look.
    pub ahead: Duration,
    /// The maximum number of groups.
    pub limit: u32,
}

impl Limits for ListDue {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
}

/// The groups in which something is due soon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueGroups {
    /// The store time of the reply.
    pub as_of: StoreTime,
    /// When the store last resumed after a hole of its pulse; `None` without a pulse.
    pub resumed_at: Option<StoreTime>,
    /// Groups with the earliest time at which something may be due, in that order. The true time may be later.
    pub groups: Vec<(Group, StoreTime)>,
    /// Whether the index is enough. A new or lost index, and a store without one, names only some groups, and without a
    /// pulse the tick of every group must be kept up: then every group must be visited.
    pub is_complete: bool,
}
