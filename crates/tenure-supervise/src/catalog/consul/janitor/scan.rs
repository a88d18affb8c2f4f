//! Scans a group for orders: its disconnected sessions with the name of a registration.
//!
//! The listing is sorted by the end of the grace, which is long for orders, so other disconnected sessions come first.
//! A scan reads a limited number of pages, and the next one continues there.

use std::collections::BTreeSet;

use tenure::{Group, PageRequest, SessionId, SessionState};
use tenure_core::clock::Mono;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::store::MAX_PAGE;

use super::{Order, OrderRunner};

/// The page limit of one scan.
const PAGES: usize = 20;

/// The scan position in one group.
#[derive(Debug)]
pub(super) struct OrderScan {
    group: Group,
    after: Option<String>,
    /// The orders found since the start of the listing.
    seen: BTreeSet<SessionId>,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct FoundOrders {
    pub(super) group: Group,
    pub(super) orders: Vec<Order>,
    /// All orders of the group, if the listing was read to its end.
    pub(super) all: Option<BTreeSet<SessionId>>,
}

impl OrderScan {
    pub(super) fn new(group: Group) -> Self {
        Self {
            group,
            after: None,
            seen: BTreeSet::new(),
        }
    }

    /// Continues the scan: reads at least one page and starts none after `by`. A failed page is read again in the next
    /// scan.
    pub(super) async fn read(&mut self, runner: &OrderRunner, by: Mono) -> Result<FoundOrders> {
        let found = self.pages(runner, by).await;
        if let Err(error) = &found
            && error.kind() != ErrorKind::Unavailable
        {
            // The store may no longer know the cursor.
            self.after = None;
            self.seen.clear();
        }
        found
    }

    async fn pages(&mut self, runner: &OrderRunner, by: Mono) -> Result<FoundOrders> {
        let mut orders = Vec::new();
        for _ in 0..PAGES {
            let is_over = self.page(runner, &mut orders).await?;
            if is_over {
                let all = Some(std::mem::take(&mut self.seen));
                return Ok(self.found(orders, all));
            }
            if runner.clock.mono() >= by {
                break;
            }
        }
        Ok(self.found(orders, None))
    }

    /// Reads one page. Returns whether it was the last.
    async fn page(&mut self, runner: &OrderRunner, orders: &mut Vec<Order>) -> Result<bool> {
        if self.after.is_none() {
            // A group without waiting sessions costs one cheap request.
            let stats = runner.ask(runner.store.session_stats(&self.group)).await?;
            if stats.disconnected + stats.orphans == 0 {
                return Ok(true);
            }
        }
        let page = PageRequest::new(self.after.clone(), MAX_PAGE)?;
        let state = Some(SessionState::Disconnected);
        let sessions = runner.ask(runner.store.sessions(&self.group, state, &page)).await?;
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

    fn found(&self, orders: Vec<Order>, all: Option<BTreeSet<SessionId>>) -> FoundOrders {
        FoundOrders {
            group: self.group.clone(),
            orders,
            all,
        }
    }
}
