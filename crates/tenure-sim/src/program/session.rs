//! The part of a program that is a front-end: it attaches the connections of clients to their sessions.
//!
//! A few clients connect everywhere, with a few connection names, so that sessions move between front-ends, and so that
//! a front-end attaches again what it is just detaching.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::session::Attaching;
use tenure::{Connection, Data, Epoch, Membership, PageRequest, SessionId, SessionState};
use tenure_core::clock::within;
use tenure_core::id::ConnectionId;
use tenure_core::session::Detach;
use tenure_core::store::Call;

use super::{MS, Program, View, lock};

/// The names of all sessions.
const SESSIONS: [&str; 6] = ["u0", "u1", "u2", "u3", "u4", "u5"];
/// The names of the connections of each.
const CONNECTIONS: [&str; 3] = ["a", "b", "c"];

/// A connection that a program holds.
pub type Held = (&'static str, &'static str);

impl View {
    /// The connections that it has attached and not lost with notice, with the epoch of each.
    #[must_use]
    pub fn connections(&self) -> BTreeMap<Held, Epoch> {
        let connections = lock(&self.connections);
        let held = connections.iter().filter(|(_, held)| !held.lost().is_cancelled());
        held.map(|(name, held)| (*name, held.epoch())).collect()
    }
}

impl Program {
    /// Performs one act of a front-end.
    pub(super) async fn serve_clients(&mut self, membership: &Arc<Membership>) {
        lock(&self.view.connections).retain(|_, held| !held.lost().is_cancelled());
        if self.view.is_calm() {
            return;
        }
        match self.chance.below(100) {
            0..26 => self.connect(membership, false).await,
            26..34 => self.connect(membership, true).await,
            34..40 => self.hang_up(membership).await,
            40..52 => self.detach(true).await,
            52..58 => self.detach(false).await,
            58..64 => self.detach_late(membership).await,
            64..70 => self.patch(membership).await,
            70..72 => {
                let session = self.any_session();
                drop(membership.sessions().group().delete(session).await);
            }
            72..84 => self.read_sessions(membership).await,
            _ => {}
        }
    }

    fn any_session(&mut self) -> &'static str {
        self.chance.pick(&SESSIONS).copied().unwrap_or_default()
    }

    fn any_connection(&mut self) -> Held {
        let connection = self.chance.pick(&CONNECTIONS).copied().unwrap_or_default();
        (self.any_session(), connection)
    }

    /// A client connects, with a new or its old connection name.
    async fn connect(&mut self, membership: &Membership, resume: bool) {
        let name = self.any_connection();
        let attaching = self.attaching(membership, name);
        let attaching = if resume { attaching.resume_only() } else { attaching };
        if let Ok(Some(held)) = attaching.await.map(tenure::Attach::attached) {
            self.view.hold(name, held);
        }
    }

    /// A client hangs up before its attach is answered.
    async fn hang_up(&mut self, membership: &Membership) {
        let name = self.any_connection();
        let wait = self.chance.duration(MS / 10, MS * 300);
        let attaching = self.attaching(membership, name);
        if let Some(Ok(tenure::Attach::Attached(held))) = within(&*self.clock, wait, attaching.send()).await {
            self.view.hold(name, held);
        }
    }

    fn attaching(&mut self, membership: &Membership, (session, connection): Held) -> Attaching {
        let mut attaching = membership.sessions().attach(session, connection);
        if self.chance.happens(300) {
            // Sometimes the name of another session.
            let alias = format!("@{}", self.any_session());
            attaching = attaching.alias(&alias);
        }
        if self.chance.happens(300) {
            attaching = attaching.grace(self.chance.duration(Duration::from_secs(1), Duration::from_secs(6)));
        }
        if self.chance.happens(500) {
            attaching = attaching.field("room", self.chance.below(9));
        }
        attaching
    }

    /// A client closes its connection; the front-end waits for the answer, or leaves it to the library.
    async fn detach(&mut self, wait: bool) {
        let names: Vec<Held> = lock(&self.view.connections).keys().copied().collect();
        let held = self
            .chance
            .pick(&names)
            .and_then(|name| lock(&self.view.connections).remove(name));
        if let (Some(held), true) = (held, wait) {
            drop(held.detach().await);
        }
    }

    /// A front-end without the library's handles sends the detach of an earlier attach, after the client has returned.
    async fn detach_late(&mut self, membership: &Membership) {
        let earlier = std::mem::take(&mut *lock(&self.view.earlier));
        let detaches: Vec<Detach> = earlier
            .into_iter()
            .filter_map(|((session, connection), epoch)| {
                Some(Detach {
                    session: SessionId::new(session).ok()?,
                    connection: ConnectionId::new(connection).ok()?,
                    epoch: Some(epoch),
                })
            })
            .collect();
        let (store, tenure) = (self.tenure.store(), membership.tenure());
        drop(
            store
                .detach(membership.group(), &tenure, &detaches, Call::default())
                .await,
        );
    }

    /// Changes the data of a session.
    async fn patch(&mut self, membership: &Membership) {
        let room = self.chance.happens(700).then(|| self.chance.below(9));
        let data = Data::from([("room".to_owned(), room.into())]);
        let session = self.any_session();
        drop(membership.sessions().group().patch(session, &data).await);
    }

    async fn read_sessions(&mut self, membership: &Membership) {
        let (session, group) = (self.any_session(), membership.sessions().group());
        match self.chance.below(6) {
            0..2 => drop(group.look_up(session).await),
            2 => drop(group.look_up_alias(&format!("@{session}")).await),
            3 => {
                let state = self.chance.pick(&SessionState::ALL).copied();
                drop(group.list(state, &PageRequest::default()).await);
            }
            4 => drop(group.orphans(Duration::ZERO, 10).await),
            _ => drop(group.stats().await),
        }
    }
}

impl View {
    /// Takes the handle of an attach, and remembers the epoch of the one that it replaces.
    fn hold(&self, name: Held, held: Connection) {
        let before = lock(&self.connections).insert(name, held);
        if let Some(before) = before {
            lock(&self.earlier).insert(name, before.epoch());
        }
    }
}
