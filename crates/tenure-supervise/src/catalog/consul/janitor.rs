//! The janitor of registrations: clears away what supervisors have left that were killed.
//!
//! A supervisor holds its registration as a session ([`Holding::session`]). When its tenure ends, the store's own janitor
//! detaches it, and what stays is an order that nobody can lose: a disconnected session. Here it is carried out, at the
//! agent that has the registration, and only then deleted; a session that somebody has attached again meanwhile cannot be.
//! Any number of janitors may work on one group: the agent is compared with before it is told, carrying an order out twice
//! changes nothing, and one of them deletes it.
//!
//! What is at the agent decides, too. Something of another life under the same id is left alone, and so is what gets its
//! beats in time: a supervisor that has lost the store and nothing else still serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tenure::loops::{LoopBody, LoopSettings, Turn};
use tenure::{Group, PageRequest, SessionId, SessionState, Store};
use tenure_core::clock::{Clock, Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::session::DeleteOutcome;
use tenure_core::store::{Call, MAX_PAGE};

use super::{CannotDeregister, Cleared, Holding, RemoteAgents};

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// How long the store may take for one call.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one order may take: an agent that hangs holds up the others no longer.
const ORDER: Duration = Duration::from_secs(3);
/// The first and the longest wait before an order is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// The wait for one that is not ours to carry out: others may be allowed what we are not.
const NOT_OURS: Duration = Duration::from_secs(60);
/// How many orders are worked on at once.
const AT_ONCE: usize = 8;
/// At most this many pages of disconnected sessions are read in one look; the rest has its turn later.
const PAGES: usize = 20;

/// The body of a loop ([`tenure::loops`]).
pub struct Janitor {
    store: Arc<dyn Store>,
    groups: Vec<Group>,
    agents: RemoteAgents,
    clock: Arc<dyn Clock>,
    orders: BTreeMap<Order, Tried>,
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor")
            .field("groups", &self.groups)
            .field("orders", &self.orders)
            .finish_non_exhaustive()
    }
}

/// A registration to be cleared away: its group and its session.
type Order = (Group, SessionId);

/// How an order has gone so far.
#[derive(Debug, Clone, Default)]
struct Tried {
    times: u32,
    /// Not before.
    due: Mono,
    /// What was said about it last.
    why: String,
}

/// What an attempt came to.
enum Done {
    /// The order is carried out, or was void; by us, when its session was still there.
    Over(Cleared, bool),
    /// Not yet, for this reason.
    Later(String, Duration),
}

impl Janitor {
    /// Its loop: how it is called, and how often it looks.
    #[must_use]
    pub fn settings() -> LoopSettings {
        LoopSettings::new("registrations", LOOK)
    }

    /// A janitor for the registrations of some groups, which calls these agents.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, groups: Vec<Group>, agents: RemoteAgents, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            groups,
            agents,
            clock,
            orders: BTreeMap::new(),
        }
    }

    /// Reads which orders there are. What is gone is forgotten.
    async fn read(&mut self) -> Result<()> {
        let mut failed = None;
        for group in self.groups.clone() {
            match self.orders_of(&group).await {
                Ok(found) => {
                    self.orders
                        .retain(|(of, session), _| *of != group || found.contains(session));
                    for session in found {
                        self.orders.entry((group.clone(), session)).or_default();
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn orders_of(&self, group: &Group) -> Result<Vec<SessionId>> {
        let stats = self.ask(self.store.session_stats(group)).await?;
        let mut found = Vec::new();
        if stats.disconnected + stats.orphans == 0 {
            return Ok(found);
        }
        let mut page = PageRequest::new(None, MAX_PAGE)?;
        for _ in 0..PAGES {
            let state = Some(SessionState::Disconnected);
            let sessions = self.ask(self.store.sessions(group, state, &page)).await?;
            let names = sessions.items.into_iter().map(|session| session.session);
            found.extend(names.filter(|name| name.as_str().parse::<Holding>().is_ok()));
            page.after = sessions.next;
            if page.after.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = within(&*self.clock, PATIENCE, call).await;
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the store does not answer")))
    }

    async fn try_once(&self, (group, session): &Order, times: u32) -> Done {
        let doubled = RETRY.0.saturating_mul(1 << times.min(8)).min(RETRY.1);
        let wait = jitter(&*self.clock, doubled, 25);
        let Ok(holding) = session.as_str().parse::<Holding>() else {
            return Done::Later("its name cannot be read".to_owned(), NOT_OURS);
        };
        let cleared = match within(&*self.clock, ORDER, self.agents.clear(&holding)).await {
            Some(Ok(Cleared::Alive)) => {
                // The agent notices the missing beats on its own, at most a ttl after the last one.
                return Done::Later("its supervisor beats at the agent".to_owned(), RETRY.0);
            }
            // Every machine calls its own agent that: what is not at ours may be at another's.
            Some(Ok(Cleared::WasNotThere | Cleared::Another)) if holding.is_at_loopback() => {
                let why = format!(
                    "it is not at {}, as far as that is the agent of this machine",
                    holding.agent
                );
                return Done::Later(why, NOT_OURS);
            }
            Some(Ok(cleared)) => cleared,
            Some(Err(error @ CannotDeregister::Failed { .. })) => return Done::Later(error.to_string(), wait),
            Some(Err(error)) => return Done::Later(error.to_string(), NOT_OURS),
            None => {
                let why = format!("the agent {} does not answer in time", holding.agent);
                return Done::Later(why, wait);
            }
        };
        match self
            .ask(self.store.delete_session(group, session, Call::default()))
            .await
        {
            Ok(outcome) => Done::Over(cleared, matches!(outcome, DeleteOutcome::Deleted { .. })),
            Err(error) => Done::Later(error.chain(), wait),
        }
    }

    fn note(&mut self, order: Order, done: Done) {
        let (group, session) = &order;
        match done {
            Done::Over(cleared, ours) => {
                if ours {
                    tracing::info!(%group, registration = %session, ?cleared, "a registration whose tenure has ended");
                }
                self.orders.remove(&order);
            }
            Done::Later(why, wait) => {
                let due = self.clock.mono() + wait;
                let tried = self.orders.entry(order.clone()).or_default();
                // Once for each reason: an agent may be away for long.
                if tried.why != why {
                    tracing::warn!(%group, registration = %session, why, "a registration is not cleared away yet");
                }
                *tried = Tried {
                    times: tried.times.saturating_add(1),
                    due,
                    why,
                };
            }
        }
    }
}

#[async_trait]
impl LoopBody for Janitor {
    async fn turn(&mut self) -> Result<Turn> {
        let read = self.read().await;
        let now = self.clock.mono();
        let due: Vec<(Order, u32)> = self
            .orders
            .iter()
            .filter(|(_, tried)| tried.due <= now)
            .map(|(order, tried)| (order.clone(), tried.times))
            .collect();
        let this = &*self;
        let tries = stream::iter(due).map(|(order, times)| async move {
            let done = this.try_once(&order, times).await;
            (order, done)
        });
        let done: Vec<(Order, Done)> = tries.buffer_unordered(AT_ONCE).collect().await;
        for (order, done) in done {
            self.note(order, done);
        }
        read?;
        let now = self.clock.mono();
        let next = self.orders.values().map(|tried| tried.due.since(now)).min();
        Ok(Turn {
            next: Some(next.unwrap_or(LOOK).min(LOOK)),
            skipped: self.orders.len() as u64,
            ..Turn::default()
        })
    }
}

#[cfg(test)]
mod tests;
