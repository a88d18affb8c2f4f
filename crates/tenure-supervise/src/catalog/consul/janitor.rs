//! The janitor of registrations: removes the registrations of killed supervisors.
//!
//! A supervisor holds its registration as a session ([`Holding::session`]). When its tenure ends, the store's own
//! janitor detaches the session. The disconnected session is a durable order to remove the registration. This janitor
//! carries the order out at the agent and then deletes the session, which fails if a connection was attached again. Any
//! number of janitors may work on one group: each reads the registration before it removes it, removing twice changes
//! nothing, and only one janitor deletes the session.
//!
//! The registration at the agent decides as well. One of another life under the same id is left alone, and so is one
//! that still gets beats: a supervisor that only lost the store still serves.
//!
//! Attempts may outlast a turn, which waits for them only for a limited time. So a hung agent blocks neither the loop
//! nor the orders of other agents. See [`queue`] for the order of attempts and [`scan`] for how orders are found.

mod queue;
mod scan;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{FLOOR, LoopBody, LoopSettings, Turn};
use tenure::{Group, SessionId, Store};
use tenure_core::clock::{Clock, Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::session::DeleteOutcome;
use tenure_core::store::Call;
use tokio::task::JoinSet;

use self::queue::{NextOrder, Queue};
use self::scan::OrderScan;
use super::{Cleared, DeregisterError, Holding, RemoteAgents};

/// The longest time between two scans.
const LOOK: Duration = Duration::from_secs(2);
/// The time between two scans while a listing is unfinished.
const LOOK_ON: Duration = Duration::from_millis(500);
/// The timeout of a store call.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a turn waits for attempts. Later results are recorded in a later turn.
const TURN: Duration = Duration::from_secs(1);
/// The first and the longest wait before an order, or an unresponsive agent, is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// The wait for an order that this janitor may not carry out; another janitor may.
const NOT_OURS: Duration = Duration::from_secs(60);

/// A loop body ([`tenure::loops`]).
pub struct Janitor {
    scans: Vec<OrderScan>,
    scan_at: Mono,
    queue: Queue,
    tries: JoinSet<(Order, AttemptOutcome)>,
    runner: OrderRunner,
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor")
            .field("looks", &self.scans)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// An order to remove a registration: its group, its session, and the parsed session name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    group: Group,
    session: SessionId,
    holding: Holding,
}

/// The result of an attempt.
enum AttemptOutcome {
    /// The order is done or void. `true`: this janitor deleted the session.
    Finished(Cleared, bool),
    /// Not done, for this reason. Try again after this wait.
    Later(String, Duration),
    /// The agent does not respond, which affects all its orders.
    Away(String),
}

impl Janitor {
    /// The name and the interval of the loop.
    #[must_use]
    pub fn settings() -> LoopSettings {
        LoopSettings::new("registrations", LOOK)
    }

    /// A janitor for the registrations of these groups, at these agents.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, groups: Vec<Group>, agents: RemoteAgents, clock: Arc<dyn Clock>) -> Self {
        Self {
            scans: groups.into_iter().map(OrderScan::new).collect(),
            scan_at: Mono::default(),
            queue: Queue::default(),
            tries: JoinSet::new(),
            runner: OrderRunner { store, agents, clock },
        }
    }

    /// Scans the groups for orders, for a limited time. Groups that were not reached come first in the next scan.
    async fn scan(&mut self) -> Result<()> {
        let clock = Arc::clone(&self.runner.clock);
        let now = clock.mono();
        if now < self.scan_at {
            return Ok(());
        }
        let (by, mut failed, mut is_whole) = (now + PATIENCE, None, true);
        for _ in 0..self.scans.len() {
            let Some(scan) = self.scans.first_mut() else { break };
            if clock.mono() > by {
                is_whole = false;
                break;
            }
            match scan.read(&self.runner, by).await {
                Ok(found) => {
                    is_whole &= found.all.is_some();
                    self.queue.take(found);
                }
                Err(error) => failed = Some(error),
            }
            self.scans.rotate_left(1);
        }
        self.scan_at = clock.mono() + if is_whole { LOOK } else { LOOK_ON };
        failed.map_or(Ok(()), Err)
    }

    /// Starts due attempts and records results, for the duration of a turn.
    async fn work(&mut self) {
        let clock = Arc::clone(&self.runner.clock);
        let by = clock.mono() + TURN;
        loop {
            while let Some(next) = self.queue.next(clock.mono()) {
                let runner = self.runner.clone();
                self.tries.spawn(async move {
                    let done = runner.run(&next).await;
                    (next.order, done)
                });
            }
            let left = by.since(clock.mono());
            if left.is_zero() {
                return;
            }
            match within(&*clock, left, self.tries.join_next()).await {
                Some(Some(Ok((order, done)))) => self.queue.note(&order, done, &*clock),
                // The loop catches the panic and continues with a new body.
                Some(Some(Err(error))) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // A task is cancelled only by the end of the runtime.
                Some(Some(Err(_)) | None) | None => return,
            }
        }
    }
}

/// Carries out orders.
#[derive(Clone)]
struct OrderRunner {
    store: Arc<dyn Store>,
    agents: RemoteAgents,
    clock: Arc<dyn Clock>,
}

impl OrderRunner {
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = within(&*self.clock, PATIENCE, call).await;
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the store does not respond")))
    }

    async fn run(&self, next: &NextOrder) -> AttemptOutcome {
        let Order {
            group,
            session,
            holding,
        } = &next.order;
        let again = || again(&*self.clock, next.times);
        let cleared = match within(&*self.clock, next.bound, self.agents.clear(holding)).await {
            Some(Ok(Cleared::Alive)) => {
                // The agent marks the service critical at most a ttl after its last beat.
                return AttemptOutcome::Later("its supervisor still beats at the agent".to_owned(), RETRY.0);
            }
            // A loopback address is another agent on each machine, so the registration may be at another one.
            Some(Ok(Cleared::WasNotThere | Cleared::Another)) if holding.is_at_loopback() => {
                let why = format!(
                    "the registration is not at {}, the agent of this machine",
                    holding.agent
                );
                return AttemptOutcome::Later(why, NOT_OURS);
            }
            Some(Ok(cleared)) => cleared,
            Some(Err(error)) => {
                let why = error.to_string();
                return match error {
                    DeregisterError::Failed { failure, .. } if failure.is_away() => AttemptOutcome::Away(why),
                    DeregisterError::Failed { .. } => AttemptOutcome::Later(why, again()),
                    _ => AttemptOutcome::Later(why, NOT_OURS),
                };
            }
            None => return AttemptOutcome::Away(format!("the agent {} does not respond in time", holding.agent)),
        };
        let deleted = self.store.delete_session(group, session, Call::default());
        match self.ask(deleted).await {
            Ok(outcome) => AttemptOutcome::Finished(cleared, matches!(outcome, DeleteOutcome::Deleted { .. })),
            Err(error) => AttemptOutcome::Later(error.chain(), again()),
        }
    }
}

/// The wait before the next attempt, after `times` attempts.
fn again(clock: &dyn Clock, times: u32) -> Duration {
    let doubled = RETRY.0.saturating_mul(1 << times.min(8)).min(RETRY.1);
    jitter(clock, doubled, 25)
}

#[async_trait]
impl LoopBody for Janitor {
    async fn turn(&mut self) -> Result<Turn> {
        let scanned = self.scan().await;
        self.work().await;
        scanned?;
        let now = self.runner.clock.mono();
        let next = if self.tries.is_empty() {
            self.queue
                .due()
                .map_or(LOOK, |due| due.since(now))
                .min(self.scan_at.since(now))
        } else {
            FLOOR
        };
        Ok(Turn {
            next: Some(next),
            skipped: self.queue.len() as u64,
            ..Turn::default()
        })
    }
}

#[cfg(test)]
mod tests;
