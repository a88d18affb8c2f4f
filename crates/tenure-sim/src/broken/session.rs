//! The broken rules of sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::{Event, EventKind, SessionId, SessionState, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::id::ConnectionId;
use tenure_core::session::{Attaches, DeleteSession, Detach, Detaches, Sessions};
use tenure_core::store::PageRequest;
use tenure_core::sweep::Reap;

use super::BrokenRule;
use crate::server::{Server, poll_once};

impl BrokenRule {
    /// Reaps one session too many.
    pub(super) fn reap_one_more(self, server: &mut Server) {
        let state = match self {
            Self::ReapConnected => SessionState::Active,
            _ => SessionState::Disconnected,
        };
        let look = server.ask(Op::Sessions(Sessions {
            state: Some(state),
            older_than: Duration::ZERO,
            page: PageRequest::default(),
        }));
        let Ok(Reply::Sessions(page)) = poll_once(server.apply(&look)) else {
            return;
        };
        let Some(session) = page.items.into_iter().next().map(|seen| seen.session) else {
            return;
        };
        if self == Self::ReapConnected {
            drop_connections(server, &session);
        }
        drop(server.also(Op::DeleteSession(DeleteSession { session })));
    }

    /// The events of the extra calls, as a reaper with this bug would write them.
    pub(crate) fn alter_events(self, op: &Op, events: &mut [Event]) {
        let (Self::ReapConnected | Self::ReapEarly, Op::Reap(Reap(request))) = (self, op) else {
            return;
        };
        for event in events {
            match event.kind {
                EventKind::SessionDeleted => {
                    event.kind = EventKind::SessionReaped;
                    event.pass = Some(request.pass.clone());
                }
                // A reaper that does not look at connections writes nothing about them.
                EventKind::SessionDisconnected => event.kind = EventKind::LabelsChanged,
                _ => {}
            }
        }
    }
}

/// Detaches every connection of a session that was ever attached.
fn drop_connections(server: &mut Server, session: &SessionId) {
    let mut attached: BTreeSet<(TenureId, ConnectionId)> = BTreeSet::new();
    for (_, ask) in &server.log {
        if let Op::Attach(Attaches { tenure, attaches }) = &ask.op {
            let here = attaches.iter().filter(|attach| attach.session == *session);
            attached.extend(here.map(|attach| (tenure.clone(), attach.connection.clone())));
        }
    }
    for (tenure, connection) in attached {
        let detaches = vec![Detach {
            session: session.clone(),
            connection,
            epoch: None,
        }];
        drop(server.also(Op::Detach(Detaches { tenure, detaches })));
    }
}
