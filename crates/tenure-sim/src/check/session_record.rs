//! The record of the sessions: what attaches, detaches and events have made of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{Alias, ConnectionId, Data, Epoch, MemberId, SessionId, StoreTime, TenureId};
use tenure_core::settling::LEVELS;

use super::{Checker, Shadow};

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
        if self.since > now + LEVELS[0] {
            // It began before the clock fell back. A shorter fall may go unnoticed, and shortens nothing.
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

/// Every connection, with its holder and the epoch of its attach.
fn connections_of(shadow: &Shadow) -> BTreeMap<Link, (TenureId, Epoch)> {
    let sessions = shadow.sessions.iter();
    let connections = sessions.flat_map(|(session, record)| {
        let held = record.connections.iter();
        held.map(|(connection, held)| ((session.clone(), connection.clone()), held.clone()))
    });
    connections.collect()
}

impl Checker {
    /// Records which connections a loss has removed, and which it has brought back.
    pub(super) fn lose_connections(&mut self, newer: &Shadow) {
        let (before, after) = (connections_of(newer), connections_of(&self.shadow));
        for (link, held) in &before {
            if after.get(link) != Some(held) {
                self.moved.insert((link.clone(), held.0.member().clone()));
            }
        }
        let is_back = |(link, held): &(Link, (TenureId, Epoch))| before.get(link).map(|held| &held.0) != Some(&held.0);
        self.returned
            .extend(after.into_iter().filter(is_back).map(|(link, _)| link));
    }

    /// Whether a member may still believe that it holds this connection: another member attached it, or the data was
    /// lost.
    #[must_use]
    pub fn may_have_moved(&self, link: &Link, member: &MemberId) -> bool {
        self.moved.contains(&(link.clone(), member.clone()))
    }

    /// Whether this connection may be attached although its holder does not know: its end was lost, or an attach came late.
    #[must_use]
    pub fn may_have_returned(&self, link: &Link) -> bool {
        self.returned.contains(link)
    }
}
