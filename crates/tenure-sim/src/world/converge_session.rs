//! Convergence of the sessions: every orphan is reaped, and the store and the front-ends agree on the connections.

use tenure::{ConnectionId, Epoch, SessionId, TenureId, Verdict};

use super::World;
use crate::check::{Checked, Link, must};
use crate::program::Held;

impl World {
    pub(super) fn sessions_are_held(&self) -> Checked {
        for (session, record) in &self.checker.shadow.sessions {
            must(
                !record.connections.is_empty(),
                "no session without a connection is left once the faults stop",
                || format!("{session}: {record:?}"),
            )?;
            for (connection, (holder, _)) in &record.connections {
                self.is_known(&(session.clone(), connection.clone()), holder)?;
            }
        }
        (0..self.nodes.len() - 1).try_for_each(|index| self.holds_its_connections(index))
    }

    /// The holder of a connection lives, and knows that it holds it.
    fn is_known(&self, link: &Link, holder: &TenureId) -> Checked {
        must(
            self.checker.shadow.current(holder).is_some(),
            "connections of ended tenures are released once the faults stop",
            || format!("{link:?} of {holder}"),
        )?;
        let views = self.nodes.iter().filter_map(super::Node::view);
        let known = views.filter(|view| {
            view.membership()
                .is_some_and(|membership| membership.tenure() == *holder)
        });
        let is_link = |(session, connection): &Held| link.0.as_str() == *session && link.1.as_str() == *connection;
        let known = known
            .flat_map(|view| view.connections().into_keys())
            .any(|held| is_link(&held));
        must(
            known || self.checker.may_have_returned(link),
            "no connection is left that its front-end has closed",
            || format!("{link:?} of {holder}"),
        )
    }

    /// What a front-end believes to hold is attached under its tenure, with the epoch that it knows.
    fn holds_its_connections(&self, index: usize) -> Checked {
        let Some(view) = self.nodes[index].view() else {
            return Ok(());
        };
        let membership = view.membership();
        let Some(membership) = membership.filter(|membership| membership.verdict() == Verdict::Held) else {
            return Ok(());
        };
        let tenure = membership.tenure();
        for ((session, connection), epoch) in view.connections() {
            let (Ok(session), Ok(connection)) = (SessionId::new(session), ConnectionId::new(connection)) else {
                continue;
            };
            let record = self.checker.shadow.sessions.get(&session);
            let held = record.and_then(|record| record.connections.get(&connection));
            let link = (session, connection);
            // An attach that a clock which fell back let through late may have raised the epoch.
            let is_attached =
                |(by, at): &(TenureId, Epoch)| *by == tenure && (*at == epoch || self.checker.may_have_returned(&link));
            must(
                held.is_some_and(is_attached) || self.checker.may_have_moved(&link, tenure.member()),
                "a front-end holds the connections that it has not lost",
                || format!("n{index} {tenure} believes to hold {link:?} with {epoch}; the store has {held:?}"),
            )?;
        }
        Ok(())
    }
}
