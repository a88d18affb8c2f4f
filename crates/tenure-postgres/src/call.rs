//! One call: a statement with a deadline, in its own task.
//!
//! The task outlives its caller, so that no statement is abandoned: it keeps the connection until the server has replied,
//! or until it is known that the server does not run the statement. No statement is cancelled: a cancel that meets a commit
//! waiting for a synchronous standby makes Postgres report success, and one through PgBouncer 1.18 can crash it.

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
use crate::lanes::{Lane, Lanes, Place};
use crate::pool::{self, Connection, Pool};
use crate::running::Running;

/// How often a statement that failed because of concurrent steps is tried.
const TRIES: u32 = 6;
/// How often to ask whether the server still runs a statement whose caller timed out.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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

pub(crate) fn maybe_numbers(values: Vec<Option<i64>>) -> Param {
    (Box::new(values), Type::INT8_ARRAY)
}

/// The time-out of a call, and its share of the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) within: Duration,
    pub(crate) lane: Lane,
}

impl CallLimits {
    /// Whether the step may change data. Such a step takes one more parameter, its not-after.
    fn writes(self) -> bool {
        self.lane != Lane::Read
    }
}

/// Makes calls.
pub(crate) struct Caller {
    pub(crate) pool: Pool,
    pub(crate) clock: Arc<dyn Clock>,
    lanes: Lanes,
    running: Running,
    pub(crate) connect_timeout: Duration,
    /// Never read separately: the reply and the refusal of a late step contain the time.
    database_clock: RemoteClock,
}

/// The failure of an attempt.
enum AttemptError {
    /// Try again.
    Retry(Error),
    /// The step was past its not-after and changed nothing.
    Late(Error),
    Final(Error),
}

/// The state of an attempt that its task and its caller share.
struct Progress(AtomicU8);

impl Progress {
    /// Moves from waiting to the given state. Returns false if the other side moved first.
    fn advance(&self, to: u8) -> bool {
        self.0
            .compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Caller {
    pub(crate) fn new(pool: Pool, clock: Arc<dyn Clock>, waiting: usize, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            lanes: Lanes::new(pool.status().max_size, waiting),
            running: Running::default(),
            pool,
            clock,
            connect_timeout,
            database_clock: RemoteClock::default(),
        })
    }

    /// Calls a step and parses its reply.
    pub(crate) async fn call<T: DeserializeOwned>(
        self: &Arc<Self>,
        step: &'static str,
        params: Vec<Param>,
        limits: CallLimits,
    ) -> Result<T> {
        let give_up = self.clock.mono() + limits.within;
        let count = params.len() + usize::from(limits.writes());
        let places: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
        let statement = format!("SELECT tenure.{step}({})::text", places.join(", "));
        let params = Arc::new(params);
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            match self.attempt(&statement, &params, limits, give_up).await {
                Ok(answer) => break answer,
                Err(AttemptError::Final(error)) => return Err(error),
                Err(AttemptError::Retry(error)) if tries >= TRIES => return Err(error),
                Err(AttemptError::Late(error)) if tries >= TRIES => {
                    let message = "the clock of the ledger's database is unstable";
                    return Err(Error::unavailable(message, Outcome::Unchanged).because(error));
                }
                // The refusal contained the time for the next attempt.
                Err(AttemptError::Late(_)) => {}
                Err(AttemptError::Retry(_)) => {
                    let pause = Duration::from_millis(1 << tries.min(6));
                    self.clock
                        .sleep(tenure_core::clock::jitter(self.clock.as_ref(), pause, 50))
                        .await;
                }
            }
        };
        serde_json::from_str(&answer).map_err(|error| {
            // The step has run; only its reply is unexpected.
            Error::new(
                ErrorKind::Internal,
                "the ledger returned an unexpected reply; please report it",
            )
            .because(error)
        })
    }

    async fn attempt(
        self: &Arc<Self>,
        statement: &str,
        params: &Arc<Vec<Param>>,
        limits: CallLimits,
        give_up: Mono,
    ) -> Result<String, AttemptError> {
        let stage = if limits.writes() {
            Stage::Writing
        } else {
            Stage::Reading
        };
        let left = give_up.since(self.clock.mono());
        if left.is_zero() {
            let message = "the call to the ledger timed out before it was sent";
            return Err(AttemptError::Final(Error::unavailable(message, Outcome::Unchanged)));
        }
        let Some(place) = self.lanes.queue() else {
            let message = "too many calls wait for a connection to the ledger";
            let error = Error::unavailable(message, Outcome::Unchanged).with_retry_after(limits.within);
            return Err(AttemptError::Final(error));
        };
        let progress = Arc::new(Progress(AtomicU8::new(WAITING)));
        let (sender, receiver) = oneshot::channel();
        let task = Task {
            caller: Arc::clone(self),
            statement: statement.to_owned(),
            params: Arc::clone(params),
            limits,
            stage,
            give_up,
            progress: Arc::clone(&progress),
        };
        tokio::spawn(async move {
            // The caller may have timed out.
            let _ = sender.send(task.run(place).await);
        });
        match within(self.clock.as_ref(), left, receiver).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(AttemptError::Final(Error::unavailable(
                "the call to the ledger was aborted",
                stage.lost(),
            ))),
            None => {
                let outcome = if progress.advance(GIVEN_UP) {
                    Outcome::Unchanged
                } else {
                    stage.lost()
                };
                let message = format!("the ledger did not answer within {:?}", limits.within);
                Err(AttemptError::Final(Error::unavailable(message, outcome)))
            }
        }
    }
}

/// One attempt, in its own task.
struct Task {
    caller: Arc<Caller>,
    statement: String,
    params: Arc<Vec<Param>>,
    limits: CallLimits,
    stage: Stage,
    give_up: Mono,
    progress: Arc<Progress>,
}

impl Task {
    async fn run(self, place: Place) -> Result<String, AttemptError> {
        let clock = self.caller.clock.as_ref();
        let left = self.give_up.since(clock.mono());
        let busy = || {
            AttemptError::Final(Error::unavailable(
                "all connections to the ledger are busy",
                Outcome::Unchanged,
            ))
        };
        let entering = self.caller.lanes.enter(self.limits.lane);
        let _share = within(clock, left, entering).await.ok_or_else(busy)?;
        // A connection attempt runs to its end, for the next caller.
        let bound = self.give_up.since(clock.mono()).max(self.caller.connect_timeout);
        let connection = pool::get(&self.caller.pool, clock, bound)
            .await
            .map_err(AttemptError::Final)?;
        drop(place);
        if !self.progress.advance(SENT) {
            return Err(AttemptError::Final(Error::unavailable(
                "the caller timed out",
                Outcome::Unchanged,
            )));
        }
        let asked = clock.mono();
        let done = self.send(&connection).await;
        self.conclude(done, connection, asked)
    }

    /// Returns the reply, or `None` if there will be none.
    async fn send(&self, connection: &Connection) -> Option<Result<tokio_postgres::Row, tokio_postgres::Error>> {
        let clock = self.caller.clock.as_ref();
        let deadline = self.caller.database_clock.not_after(self.give_up, Call::default());
        let limit = deadline
            .not_after
            .map(|at| i64::try_from(at.micros()).unwrap_or(i64::MAX));
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .params
            .iter()
            .map(|(value, kind)| (&**value as _, kind.clone()))
            .collect();
        if self.limits.writes() {
            params.push((&limit, Type::INT8));
        }
        // The server shows the text of what it runs.
        let mark = format!("/* {:016x} */", clock.entropy());
        let statement = format!("{mark} {}", self.statement);
        let mut query = std::pin::pin!(connection.client.query_typed_one(&statement, &params));
        let mut wait = self.give_up.since(clock.mono());
        loop {
            match within(clock, wait, query.as_mut()).await {
                Some(done) => return Some(done),
                None => wait = LOOK_EVERY,
            }
            let looking = self.caller.running.look(&self.caller.pool, &mark);
            if within(clock, self.caller.connect_timeout, looking).await == Some(false) {
                return None;
            }
        }
    }

    fn conclude(
        &self,
        done: Option<Result<tokio_postgres::Row, tokio_postgres::Error>>,
        connection: Connection,
        asked: Mono,
    ) -> Result<String, AttemptError> {
        let arrived = self.caller.clock.mono();
        let learn = |now| self.caller.database_clock.learn(now, asked, arrived);
        if connection.take_unconfirmed() && self.limits.writes() {
            let message = "the wait for a synchronous standby was cancelled: the change may be lost with the server";
            return Err(AttemptError::Final(Error::unavailable(message, Outcome::Unknown)));
        }
        match done {
            None => {
                pool::discard(connection);
                let error = Error::unavailable("the ledger did not answer", self.stage.lost());
                Err(AttemptError::Final(error))
            }
            Some(Ok(row)) => {
                drop(connection);
                let answer: String = row.try_get(0).map_err(|error| {
                    AttemptError::Final(Error::new(ErrorKind::Internal, "the ledger returned no reply").because(error))
                })?;
                if let Some(now) = now_of(&answer) {
                    learn(now);
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
                        learn(now);
                        AttemptError::Late(outer)
                    }
                    None if again => AttemptError::Retry(outer),
                    None => AttemptError::Final(outer),
                })
            }
        }
    }
}

/// The ledger's time, which every reply contains.
fn now_of(answer: &str) -> Option<StoreTime> {
    #[derive(serde::Deserialize)]
    struct Now {
        now: u64,
    }
    serde_json::from_str::<Now>(answer)
        .ok()
        .map(|answer| StoreTime::from_micros(answer.now))
}
