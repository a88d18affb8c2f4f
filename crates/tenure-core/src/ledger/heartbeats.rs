//! Heartbeats that a process waits for because it cannot reach the hot store.
//!
//! Such a process sees only the ledger, which learns of heartbeats about once a minute. So it marks its rosters as
//! wanted, and every process that reaches the hot store writes the heartbeats of these down every few seconds. Each time
//! it notes a [`HeartbeatPass`]: the proof that the ledger knew them all.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::RosterName;
use crate::time::StoreTime;

/// The last time that all heartbeats of a roster were written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatPass {
    /// Every provider that was alive in the hot store had been heard at this time or later.
    pub fresh_since: StoreTime,
    /// How long ago it was complete, on the ledger's clock.
    pub age: Duration,
}

/// The marks and the passes of a ledger that only one process has: they are worth nothing without that process, so they
/// stay in memory.
#[derive(Debug, Default)]
pub struct HeartbeatMarks {
    wanted_until: BTreeMap<RosterName, StoreTime>,
    /// Since when everyone alive had been heard, and when that was noted.
    passes: BTreeMap<RosterName, (StoreTime, StoreTime)>,
}

impl HeartbeatMarks {
    /// Marks rosters as wanted until then, or for longer where they are already.
    pub fn want(&mut self, rosters: &[RosterName], until: StoreTime) {
        for roster in rosters {
            let known = self.wanted_until.entry(roster.clone()).or_insert(until);
            *known = (*known).max(until);
        }
    }

    /// The rosters that are wanted now, by name.
    pub fn wanted(&mut self, now: StoreTime) -> Vec<RosterName> {
        self.wanted_until.retain(|_, until| *until > now);
        self.wanted_until.keys().cloned().collect()
    }

    /// Notes a pass.
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
