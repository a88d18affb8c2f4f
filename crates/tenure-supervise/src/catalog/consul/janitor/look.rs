//! Which orders there are: the disconnected sessions of a group whose names are those of registrations.
//!
//! They come by when their grace ends, and that of an order is long: whatever else waits in the group comes before it. So a
//! look reads only so many pages, and the next one continues where it stopped.

use std::collections::BTreeSet;

use tenure::{Group, PageRequest, SessionId, SessionState};
use tenure_core::clock::Mono;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::store::MAX_PAGE;

use super::{Hands, Order};

/// At most this many pages are read in one look.
const PAGES: usize = 20;

/// How far the listing of one group is read.
#[derive(Debug)]
pub(super) struct Look {
    group: Group,
    after: Option<String>,
    /// The orders that this pass over the listing has found so far.
    seen: BTreeSet<SessionId>,
}

/// What a look has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) group: Group,
    pub(super) orders: Vec<Order>,
    /// All that the group has, when the listing was read to its end.
    pub(super) all: Option<BTreeSet<SessionId>>,
}

impl Look {
    pub(super) fn new(group: Group) -> Self {
        Self {
            group,
            after: None,
            seen: BTreeSet::new(),
        }
    }

    /// Reads on, at least one page, and none after `by`. What fails is read again in the next look.
    pub(super) async fn read(&mut self, hands: &Hands, by: Mono) -> Result<Found> {
        let found = self.pages(hands, by).await;
        if let Err(error) = &found
            && error.kind() != ErrorKind::Unavailable
        {
            // The place may be one that the store no longer knows.
            self.after = None;
            self.seen.clear();
        }
        found
    }

    async fn pages(&mut self, hands: &Hands, by: Mono) -> Result<Found> {
        let mut orders = Vec::new();
        for _ in 0..PAGES {
            let is_over = self.page(hands, &mut orders).await?;
            if is_over {
                let all = Some(std::mem::take(&mut self.seen));
                return Ok(self.found(orders, all));
            }
            if hands.clock.mono() >= by {
                break;
            }
        }
        Ok(self.found(orders, None))
    }

    /// Reads one page. Whether it was the last.
    async fn page(&mut self, hands: &Hands, orders: &mut Vec<Order>) -> Result<bool> {
        if self.after.is_none() {
            // A group in which nothing waits costs one cheap question.
            let stats = hands.ask(hands.store.session_stats(&self.group)).await?;
            if stats.disconnected + stats.orphans == 0 {
                return Ok(true);
            }
        }
        let page = PageRequest::new(self.after.clone(), MAX_PAGE)?;
        let state = Some(SessionState::Disconnected);
        let sessions = hands.ask(hands.store.sessions(&self.group, state, &page)).await?;
        for session in sessions.items.into_iter().map(|session| session.session) {
            let Ok(holding) = session.as_str().parse() else {
                continue;
            };
            self.seen.insert(session.clone());
            let group = self.group.clone();
            orders.push(Order {
                group,
                session,
                holding,
            });
        }
        self.after = sessions.next;
        Ok(self.after.is_none())
    }

    fn found(&self, orders: Vec<Order>, all: Option<BTreeSet<SessionId>>) -> Found {
        Found {
            group: self.group.clone(),
            orders,
            all,
        }
    }
}
