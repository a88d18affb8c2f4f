//! One call: a statement under a deadline, in a task of its own.
//!
//! The task outlives its caller, so that no statement is abandoned half-way: when the caller has given up, the task
//! cancels the statement, and gives the connection back only when the server has answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::Outcome;
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::Call;
use tenure_core::{Error, ErrorKind, Result, StoreTime};
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};

use crate::error::{Stage, classify, ends_the_connection, is_worth_another_try, time_of_refusal};
use crate::pool::{self, Connection, Pool};

/// How often a statement that only met others in its way is sent again.
const TRIES: u32 = 6;
/// How long the server may take to answer for a statement that was cancelled, before its connection is thrown away.
const LAST_WORD: Duration = Duration::from_secs(1);

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// A parameter of a step.
pub(crate) type Param = (Box<dyn ToSql + Send + Sync>, Type);

pub(crate) fn text(value: impl Into<Option<String>>) -> Param {
    (Box::new(value.into()), Type::TEXT)
}

pub(crate) fn number(value: impl Into<Option<i64>>) -> Param {
    (Box::new(value.into()), Type::INT8)
}

pub(crate) fn small(value: Option<u32>) -> Param {
    (
        Box::new(value.map(|value| i32::try_from(value).unwrap_or(i32::MAX))),
        Type::INT4,
    )
}

pub(crate) fn flag(value: Option<bool>) -> Param {
    (Box::new(value), Type::BOOL)
}

pub(crate) fn texts(values: Option<Vec<String>>) -> Param {
    (Box::new(values), Type::TEXT_ARRAY)
}

pub(crate) fn numbers(values: Vec<i64>) -> Param {
    (Box::new(values), Type::INT8_ARRAY)
}

/// What a call may do and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) within: Duration,
    /// Whether it may change something. Such a step takes one more parameter, the time after which it is too late.
    pub(crate) write: bool,
}

/// Makes calls.
pub(crate) struct Caller {
    pub(crate) pool: Pool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) waiting: usize,
    pub(crate) connect_timeout: Duration,
    /// Never asked for by itself: a refusal shows the time, and a statement that is given up is cancelled besides.
    database_clock: RemoteClock,
}

/// Why one try failed.
enum Failed {
    /// The same again, at once.
    Again(Error),
    /// It was too late by its not-after, and nothing changed.
    Late(Error),
    For(Error),
}

/// What a call's task shares with its caller.
struct Progress(AtomicU8);

impl Progress {
    /// From waiting to the given state; false when the other side was quicker.
    fn turn(&self, to: u8) -> bool {
        self.0
            .compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Caller {
    pub(crate) fn new(pool: Pool, clock: Arc<dyn Clock>, waiting: usize, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            pool,
            clock,
            waiting,
            connect_timeout,
            database_clock: RemoteClock::default(),
        })
    }

    /// Calls a step and reads its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        self: &Arc<Self>,
        step: &'static str,
        params: Vec<Param>,
        terms: Terms,
    ) -> Result<T> {
        let give_up = self.clock.mono() + terms.within;
        let count = params.len() + usize::from(terms.write);
        let places: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
        let statement: Arc<str> = format!("SELECT tenure.{step}({})::text", places.join(", ")).into();
        let params = Arc::new(params);
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            match self.attempt(&statement, &params, terms, give_up).await {
                Ok(answer) => break answer,
                Err(Failed::For(error)) => return Err(error),
                Err(Failed::Again(error)) if tries >= TRIES => return Err(error),
                Err(Failed::Late(error)) if tries >= TRIES => {
                    let message = "the clock of the ledger's database does not stand still";
                    return Err(Error::unavailable(message, Outcome::Unchanged).because(error));
                }
                // The refusal told the time.
                Err(Failed::Late(_)) => {}
                Err(Failed::Again(_)) => {
                    let pause = Duration::from_millis(1 << tries.min(6));
                    self.clock
                        .sleep(tenure_core::clock::jitter(self.clock.as_ref(), pause, 50))
                        .await;
                }
            }
        };
        serde_json::from_str(&answer).map_err(|error| {
            // The step is done; only its answer is not understood.
            Error::new(
                ErrorKind::Internal,
                "the ledger's answer is not one that Tenure gives; please report it",
            )
            .because(error)
        })
    }

    async fn attempt(
        self: &Arc<Self>,
        statement: &Arc<str>,
        params: &Arc<Vec<Param>>,
        terms: Terms,
        give_up: Mono,
    ) -> Result<String, Failed> {
        let stage = if terms.write { Stage::Writing } else { Stage::Reading };
        let left = give_up.since(self.clock.mono());
        if left.is_zero() {
            let message = "the ledger did not get to it in time";
            return Err(Failed::For(Error::unavailable(message, Outcome::Unchanged)));
        }
        if self.pool.status().waiting >= self.waiting {
            let message = "too many calls wait for a connection to the ledger";
            let error = Error::unavailable(message, Outcome::Unchanged).with_retry_after(terms.within);
            return Err(Failed::For(error));
        }
        let progress = Arc::new(Progress(AtomicU8::new(WAITING)));
        let (tell, told) = oneshot::channel();
        let task = Task {
            caller: Arc::clone(self),
            statement: Arc::clone(statement),
            params: Arc::clone(params),
            terms,
            stage,
            give_up,
            progress: Arc::clone(&progress),
        };
        tokio::spawn(async move {
            // Nobody may be there any more to be told.
            let _ = tell.send(task.run().await);
        });
        match within(self.clock.as_ref(), left, told).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(Failed::For(Error::unavailable(
                "the call to the ledger was broken off",
                stage.lost(),
            ))),
            None => {
                let outcome = if progress.turn(GIVEN_UP) {
                    Outcome::Unchanged
                } else {
                    stage.lost()
                };
                let message = format!("the ledger did not answer within {:?}", terms.within);
                Err(Failed::For(Error::unavailable(message, outcome)))
            }
        }
    }
}

/// One try, on its own.
struct Task {
    caller: Arc<Caller>,
    statement: Arc<str>,
    params: Arc<Vec<Param>>,
    terms: Terms,
    stage: Stage,
    give_up: Mono,
    progress: Arc<Progress>,
}

impl Task {
    async fn run(self) -> Result<String, Failed> {
        let clock = self.caller.clock.as_ref();
        // A connection that is being made is made to the end, for whoever comes next.
        let bound = self.give_up.since(clock.mono()).max(self.caller.connect_timeout);
        let connection = pool::get(&self.caller.pool, clock, bound).await.map_err(Failed::For)?;
        if !self.progress.turn(SENT) {
            return Err(Failed::For(Error::unavailable("nobody waits", Outcome::Unchanged)));
        }
        let limits = self.caller.database_clock.not_after(self.give_up, Call::default());
        let limit = limits
            .not_after
            .map(|at| i64::try_from(at.micros()).unwrap_or(i64::MAX));
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .params
            .iter()
            .map(|(value, kind)| (&**value as _, kind.clone()))
            .collect();
        if self.terms.write {
            params.push((&limit, Type::INT8));
        }
        let cancel = connection.client.cancel_token();
        let asked = clock.mono();
        let done = {
            let mut query = std::pin::pin!(connection.client.query_typed_one(&self.statement, &params));
            let left = self.give_up.since(clock.mono());
            match within(clock, left, query.as_mut()).await {
                Some(done) => Some(done),
                None => {
                    // Two bounded waits: for the request to arrive, and for what the server makes of it.
                    within(clock, LAST_WORD, pool::cancel(&self.caller.pool, cancel)).await;
                    within(clock, LAST_WORD, query).await
                }
            }
        };
        self.conclude(done, connection, asked)
    }

    fn conclude(
        &self,
        done: Option<Result<tokio_postgres::Row, tokio_postgres::Error>>,
        connection: Connection,
        asked: Mono,
    ) -> Result<String, Failed> {
        let arrived = self.caller.clock.mono();
        let told = |now| self.caller.database_clock.learn(now, asked, arrived);
        match done {
            None => {
                pool::discard(connection);
                let error = Error::unavailable("the ledger did not answer", self.stage.lost());
                Err(Failed::For(error))
            }
            Some(Ok(row)) => {
                drop(connection);
                let answer: String = row.try_get(0).map_err(|error| {
                    Failed::For(Error::new(ErrorKind::Internal, "the ledger gave no answer").because(error))
                })?;
                if let Some(now) = now_of(&answer) {
                    told(now);
                }
                Ok(answer)
            }
            Some(Err(error)) => {
                let refused_at = time_of_refusal(&error);
                let again = is_worth_another_try(&error);
                if ends_the_connection(&error) {
                    pool::discard(connection);
                }
                let outer = classify(error, self.stage);
                Err(match refused_at {
                    Some(now) => {
                        told(now);
                        Failed::Late(outer)
                    }
                    None if again => Failed::Again(outer),
                    None => Failed::For(outer),
                })
            }
        }
    }
}

/// The ledger's time, which every answer carries.
fn now_of(answer: &str) -> Option<StoreTime> {
    #[derive(serde::Deserialize)]
    struct Now {
        now: u64,
    }
    serde_json::from_str::<Now>(answer)
        .ok()
        .map(|answer| StoreTime::from_micros(answer.now))
}
