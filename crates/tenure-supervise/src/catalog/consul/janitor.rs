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
//!
//! Tries outlast a turn, which waits for them only so long: an agent that hangs holds up neither the loop nor the orders of
//! other agents. See [`queue`] for whose turn it is, and [`look`] for how orders are found.

mod look;
mod queue;

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

use self::look::Look;
use self::queue::{Next, Queue};
use super::{CannotDeregister, Cleared, Holding, RemoteAgents};

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// The time between two looks while a listing is not read to its end.
const LOOK_ON: Duration = Duration::from_millis(500);
/// How long the store may take for one call.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a turn waits for tries. Those that take longer are noted in a later turn.
const TURN: Duration = Duration::from_secs(1);
/// The first and the longest wait before an order, or an agent that is away, is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// The wait for one that is not ours to carry out: others may be allowed what we are not.
const NOT_OURS: Duration = Duration::from_secs(60);

/// The body of a loop ([`tenure::loops`]).
pub struct Janitor {
    looks: Vec<Look>,
    look_at: Mono,
    queue: Queue,
    tries: JoinSet<(Order, Done)>,
    hands: Hands,
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor")
            .field("looks", &self.looks)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// A registration to be cleared away: its group, its session, and what the session's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    group: Group,
    session: SessionId,
    holding: Holding,
}

/// The result of an attempt.
enum Done {
    /// The order is carried out, or was void; by us, when its session was still there.
    Over(Cleared, bool),
    /// Not yet, for this reason: it is tried again after this long.
    Later(String, Duration),
    /// Its agent does not answer, which is so for all other orders at that agent.
    Away(String),
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
            looks: groups.into_iter().map(Look::new).collect(),
            look_at: Mono::default(),
            queue: Queue::default(),
            tries: JoinSet::new(),
            hands: Hands { store, agents, clock },
        }
    }

    /// Reads which orders there are, for a bounded time. The groups that were not reached are the first in the next look.
    async fn look(&mut self) -> Result<()> {
        let clock = Arc::clone(&self.hands.clock);
        let now = clock.mono();
        if now < self.look_at {
            return Ok(());
        }
        let (by, mut failed, mut is_whole) = (now + PATIENCE, None, true);
        for _ in 0..self.looks.len() {
            let Some(look) = self.looks.first_mut() else { break };
            if clock.mono() > by {
                is_whole = false;
                break;
            }
            match look.read(&self.hands, by).await {
                Ok(found) => {
                    is_whole &= found.all.is_some();
                    self.queue.take(found);
                }
                Err(error) => failed = Some(error),
            }
            self.looks.rotate_left(1);
        }
        self.look_at = clock.mono() + if is_whole { LOOK } else { LOOK_ON };
        failed.map_or(Ok(()), Err)
    }

    /// Starts what is due and notes what has ended, for as long as a turn may take.
    async fn work(&mut self) {
        let clock = Arc::clone(&self.hands.clock);
        let by = clock.mono() + TURN;
        loop {
            while let Some(next) = self.queue.next(clock.mono()) {
                let hands = self.hands.clone();
                self.tries.spawn(async move {
                    let done = hands.carry_out(&next).await;
                    (next.order, done)
                });
            }
            let left = by.since(clock.mono());
            if left.is_zero() {
                return;
            }
            match within(&*clock, left, self.tries.join_next()).await {
                Some(Some(Ok((order, done)))) => self.queue.note(&order, done, &*clock),
                // The loop catches a panic, and continues with a new body.
                Some(Some(Err(error))) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Nothing is cancelled but by the end of the runtime.
                Some(Some(Err(_)) | None) | None => return,
            }
        }
    }
}

/// What orders are carried out with.
#[derive(Clone)]
struct Hands {
    store: Arc<dyn Store>,
    agents: RemoteAgents,
    clock: Arc<dyn Clock>,
}

impl Hands {
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = within(&*self.clock, PATIENCE, call).await;
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the store does not answer")))
    }

    async fn carry_out(&self, next: &Next) -> Done {
        let Order {
            group,
            session,
            holding,
        } = &next.order;
        let again = || again(&*self.clock, next.times);
        let cleared = match within(&*self.clock, next.bound, self.agents.clear(holding)).await {
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
            Some(Err(error)) => {
                let why = error.to_string();
                return match error {
                    CannotDeregister::Failed { failure, .. } if failure.is_away() => Done::Away(why),
                    CannotDeregister::Failed { .. } => Done::Later(why, again()),
                    _ => Done::Later(why, NOT_OURS),
                };
            }
            None => return Done::Away(format!("the agent {} does not answer in time", holding.agent)),
        };
        let deleted = self.store.delete_session(group, session, Call::default());
        match self.ask(deleted).await {
            Ok(outcome) => Done::Over(cleared, matches!(outcome, DeleteOutcome::Deleted { .. })),
            Err(error) => Done::Later(error.chain(), again()),
        }
    }
}

/// The wait before the next try, after so many.
fn again(clock: &dyn Clock, times: u32) -> Duration {
    let doubled = RETRY.0.saturating_mul(1 << times.min(8)).min(RETRY.1);
    jitter(clock, doubled, 25)
}

#[async_trait]
impl LoopBody for Janitor {
    async fn turn(&mut self) -> Result<Turn> {
        let looked = self.look().await;
        self.work().await;
        looked?;
        let now = self.hands.clock.mono();
        let next = if self.tries.is_empty() {
            self.queue
                .due()
                .map_or(LOOK, |due| due.since(now))
                .min(self.look_at.since(now))
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
