//! Heartbeats for processes that cannot reach the hot store.
//!
//! Such a process sees only the ledger, which gets heartbeats about once a minute. So it marks its rosters as wanted,
//! and every process that reaches the hot store records their heartbeats every few seconds. Each time it adds a
//! [`HeartbeatPass`]: the proof that the ledger had all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::RosterName;
use crate::time::StoreTime;

/// The last complete recording of a roster's heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatPass {
    /// Every provider alive in the hot store had sent a heartbeat at this time or later.
    pub fresh_since: StoreTime,
    /// The time since the recording, on the ledger's clock.
    pub age: Duration,
}

/// The marks and passes of a ledger with a single process. They are useless without that process, so they stay in
/// memory.
#[derive(Debug, Default)]
pub struct HeartbeatMarks {
    wanted_until: BTreeMap<RosterName, StoreTime>,
    /// The `fresh_since` of the last pass, and when it was recorded.
    passes: BTreeMap<RosterName, (StoreTime, StoreTime)>,
}

impl HeartbeatMarks {
    /// Marks rosters as wanted until then, or until the end of an earlier mark.
    pub fn want(&mut self, rosters: &[RosterName], until: StoreTime) {
        for roster in rosters {
            let known = self.wanted_until.entry(roster.clone()).or_insert(until);
            *known = (*known).max(until);
        }
    }

    /// The wanted rosters, by name.
    pub fn wanted(&mut self, now: StoreTime) -> Vec<RosterName> {
        self.wanted_until.retain(|_, until| *until > now);
        self.wanted_until.keys().cloned().collect()
    }

    /// Records a pass.
    pub fn passed(&mut self, roster: &RosterName, fresh_since: StoreTime, now: StoreTime) {
        self.passes.insert(roster.clone(), (fresh_since.min(now), now));
    }

    /// The last pass.
    #[must_use]
    pub fn pass(&self, roster: &RosterName, now: StoreTime) -> Option<HeartbeatPass> {
        let (fresh_since, at) = *self.passes.get(roster)?;
        let age = now.since(at);
        Some(HeartbeatPass { fresh_since, age })
    }
}
