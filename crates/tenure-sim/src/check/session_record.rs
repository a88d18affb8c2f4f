//! The record of the sessions: what attaches, detaches and events have made of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{Alias, ConnectionId, Data, Epoch, SessionId, StoreTime, TenureId};

/// A connection of a session.
pub type Link = (SessionId, ConnectionId);

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// The epoch of its last attach.
    pub epoch: Epoch,
    /// When it was created.
    pub created_at: StoreTime,
    /// Its alias.
    pub alias: Option<Alias>,
    /// Its data.
    pub data: Data,
    /// The grace that an attach asked for.
    pub grace: Option<Duration>,
    /// Its connections, each with its holder and the epoch of its attach.
    pub connections: BTreeMap<ConnectionId, (TenureId, Epoch)>,
    /// Since when it has had none.
    pub away: Option<AwayRecord>,
}

/// A grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwayRecord {
    /// When the last connection ended.
    pub since: StoreTime,
    /// The length of the grace.
    pub lasts: Duration,
}

impl AwayRecord {
    /// When the grace is over if all graces were last restarted at `resumed_at`.
    #[must_use]
    pub fn end(self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        let restarted = resumed_at + self.lasts;
        if self.since > now {
            // It began before the clock fell back.
            restarted
        } else {
            restarted.max(self.since + self.lasts)
        }
    }
}

impl SessionRecord {
    /// Removes a connection. If it was the last one, the grace begins; returns its length.
    pub fn disconnect(&mut self, connection: &ConnectionId, now: StoreTime, default: Duration) -> Option<Duration> {
        self.connections.remove(connection)?;
        if !self.connections.is_empty() {
            return None;
        }
        let lasts = self.grace.unwrap_or(default);
        self.away = Some(AwayRecord { since: now, lasts });
        Some(lasts)
    }

    /// Applies a change of the data.
    pub fn patch(&mut self, change: &Data) {
        self.data.extend(change.clone());
        self.data.retain(|_, value| !value.is_null());
    }
}
