//! The connection to one server: a handle that fails fast, over a supervisor that keeps one multiplexed connection up.
//!
//! While the server is away every call fails at once, with nothing changed: nothing is queued and nothing is replayed.
//! Every call has a deadline of ours; three that pass in a row end the connection. Every reply carries the store's
//! time, from which the not-after time of the next mutating call is made, so that a call its caller has given up on
//! cannot take effect later. All work runs on the runtime that was current when the connection was opened: calls may
//! come from any other, also from one whose threads are blocked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::{Call, Health};
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use super::life::{self, Failure, Life};
use super::options::{ConnectionOptions, Need};
use super::patient::{self, Patient};
use super::sentinel::Dissent;
use super::supervisor;
use crate::address::Address;
use crate::classify::Verdict;
use crate::reply::{Malformed, Read, Reader};
use crate::script::{Invocation, Lateness, Script};

/// A handle to a supervised connection to one server. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
    _last: Arc<CloseOnDrop>,
}

/// What the handles and the supervisor share.
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) options: ConnectionOptions,
    pub(super) needs: Vec<Need>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
    /// Numbers connections, those of other links of one store as well.
    pub(super) lives: Arc<AtomicU64>,
    /// What sentinels say against their own epochs.
    pub(super) dissent: Mutex<Dissent>,
    state: RwLock<State>,
    nonce: AtomicU64,
    in_flight: Arc<Semaphore>,
    closed: watch::Sender<bool>,
    pub(super) tried: watch::Sender<bool>,
}

pub(super) enum State {
    Up(Arc<Life>),
    Down {
        kind: ErrorKind,
        reason: String,
        retry_after: Duration,
    },
}

struct CloseOnDrop(std::sync::Weak<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.close();
        }
    }
}

/// A reply as it came, to be opened by [`Link::open`].
pub(super) struct Answer {
    value: Value,
    asked: Mono,
    arrived: Mono,
    life: Arc<Life>,
    nonce: String,
}

impl Link {
    /// Makes a connection that comes up by itself, now or whenever the server is there.
    pub(super) fn start(
        address: Address,
        options: ConnectionOptions,
        needs: Vec<Need>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        lives: Arc<AtomicU64>,
    ) -> Self {
        let shared = Arc::new(Shared {
            nonce: AtomicU64::new(clock.entropy()),
            in_flight: Arc::new(Semaphore::new(options.in_flight)),
            closed: watch::Sender::new(false),
            state: RwLock::new(State::Down {
                kind: ErrorKind::Unavailable,
                reason: "not connected yet".to_owned(),
                retry_after: supervisor::FIRST_BACKOFF,
            }),
            tried: watch::Sender::new(false),
            dissent: Mutex::default(),
            address,
            options,
            needs,
            clock,
            runtime,
            lives,
        });
        supervisor::start(&shared);
        let last = Arc::new(CloseOnDrop(Arc::downgrade(&shared)));
        Self { shared, _last: last }
    }

    pub(super) fn place(&self) -> &str {
        self.shared.address.place()
    }

    pub(super) fn options(&self) -> &ConnectionOptions {
        &self.shared.options
    }

    pub(super) fn answers_within(&self) -> Option<Duration> {
        let confirms = self.shared.address.wait().is_some();
        (!confirms).then_some(self.shared.options.request_timeout)
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    pub(super) fn health(&self) -> Health {
        match &*self.shared.read_state() {
            State::Up(life) => {
                let why = life.why_ended().or_else(|| life.patient().and_then(Patient::why_away));
                why.map_or(Health::Up, |reason| Health::Down { reason })
            }
            State::Down { reason, .. } => Health::Down { reason: reason.clone() },
        }
    }

    pub(super) fn why_down(&self) -> Option<ErrorKind> {
        match &*self.shared.read_state() {
            State::Up(_) => None,
            State::Down { kind, .. } => Some(*kind),
        }
    }

    pub(super) fn close(&self) {
        self.shared.close();
    }

    /// Waits until the connection is up or has failed for the first time; at most the connect timeout.
    pub(super) async fn first_try(&self) {
        // An error means that there is no supervisor to wait for.
        let _ = self.shared.tried.subscribe().wait_for(|tried| *tried).await;
    }

    /// Calls a script.
    pub(super) async fn ask(&self, script: &Arc<Script>, invocation: Invocation) -> Result<Answer> {
        let life = self.shared.life()?;
        let nonce = format!("{:x}", self.shared.nonce.fetch_add(1, Ordering::Relaxed));
        let bound = self.shared.options.request_timeout;
        let began = self.shared.clock.mono();
        let wait = self.shared.address.wait().filter(|_| invocation.confirmed);
        let turn = wait.map(|_| began + patient::turn(bound));
        let work = exchange(
            Arc::clone(&self.shared),
            Arc::clone(&life),
            Arc::clone(script),
            invocation,
            nonce.clone(),
            (began + bound, turn),
        );
        let (value, arrived) = match wait {
            None => self.run(&life, bound, work).await?,
            Some(wait) => {
                // Replicas are waited for after the step was done, and for the turn before it.
                let bound = patient::turn(bound) + bound + wait.within;
                let done = self.bounded(bound, work).await?;
                done.unwrap_or(Err(Failure::Silent(bound))).map_err(life::into_error)?
            }
        };
        Ok(Answer {
            value,
            asked: began,
            arrived,
            life,
            nonce,
        })
    }

    /// Reads what follows a reply's nonce and time.
    pub(super) fn open<T>(
        script: &Script,
        answer: Answer,
        read: impl FnOnce(&mut Reader, StoreTime) -> Read<T>,
    ) -> Result<T> {
        let life = answer.life;
        let opened = open_reply(answer.value, &answer.nonce).and_then(|(mut reader, now)| {
            life.learn(now, answer.asked, answer.arrived);
            match reader.late {
                true => Ok(None),
                false => read(&mut reader.rest, now).map(Some),
            }
        });
        match opened {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(Error::too_late()),
            Err(malformed) => Err(life.distrust(script.name(), malformed)),
        }
    }

    /// Sends one plain command.
    pub(super) async fn command(&self, cmd: Cmd) -> Result<Value> {
        let life = self.shared.life()?;
        let work = {
            let life = Arc::clone(&life);
            async move { life.send(cmd).await }
        };
        let (value, _) = self.run(&life, self.shared.options.request_timeout, work).await?;
        Ok(value)
    }

    /// Asks the store's clock. With a test's clock: what the test set last.
    pub(super) async fn time(&self) -> Result<StoreTime> {
        let life = self.shared.life()?;
        if self.shared.options.on_test_clock() {
            let value = self.command(redis::cmd("GET").arg(TEST_NOW).to_owned()).await?;
            let read = Reader::new(Value::Array(vec![value])).and_then(|mut reader| reader.maybe_number());
            let micros = read.map_err(|malformed| life.distrust("GET", malformed))?;
            return Ok(StoreTime::from_micros(micros.unwrap_or(0)));
        }
        let asked = self.shared.clock.mono();
        let work = {
            let life = Arc::clone(&life);
            async move { life.send(redis::cmd("TIME")).await }
        };
        let (value, arrived) = self.run(&life, self.shared.options.request_timeout, work).await?;
        let now = life::read_time(value).map_err(|malformed| life.distrust("TIME", malformed))?;
        life.learn(now, asked, arrived);
        Ok(now)
    }

    /// A number that is another for every connection; `None` while there is none.
    pub(super) fn life(&self) -> Option<u64> {
        self.shared.life().ok().map(|life| life.number())
    }

    /// Runs work over the first connection, which is given up when it is silent too often.
    async fn run(
        &self,
        life: &Arc<Life>,
        bound: Duration,
        work: impl Future<Output = Result<Value, Failure>> + Send + 'static,
    ) -> Result<(Value, Mono)> {
        match self.bounded(bound, work).await? {
            Some(Ok(done)) => {
                life.answered();
                Ok(done)
            }
            Some(Err(failure)) => Err(life.fail(failure)),
            None => Err(life.timed_out(bound)),
        }
    }

    /// Runs work on our own runtime, bounded in time and by the requests in flight. `None` when the time has passed.
    async fn bounded(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<Value, Failure>> + Send + 'static,
    ) -> Result<Option<Result<(Value, Mono), Failure>>> {
        let shared = &self.shared;
        let Ok(permit) = Arc::clone(&shared.in_flight).try_acquire_owned() else {
            let message = format!(
                "{} requests to the store are in flight already",
                shared.options.in_flight
            );
            return Err(
                Error::unavailable(message, Outcome::Unchanged).with_retry_after(shared.options.request_timeout)
            );
        };
        let clock = Arc::clone(&shared.clock);
        let task = shared.runtime.spawn(async move {
            let done = within(&*clock, bound, work).await;
            drop(permit);
            done.map(|done| done.map(|value| (value, clock.mono())))
        });
        AbortOnDrop(task)
            .join()
            .await
            .ok_or_else(|| Error::unavailable("the runtime that the store was opened on has ended", Outcome::Unknown))
    }
}

/// How soon to ask again when the connection has just gone and the supervisor is about to make another.
const RETRY_AT_ONCE: Duration = Duration::from_millis(100);

/// The key that holds a test's time.
pub(crate) const TEST_NOW: &str = "tenure:test:now";

/// Sends a script's call, and the script's text when the server does not know it. With a turn replicas have to confirm it,
/// and it is sent by then or not at all.
async fn exchange(
    shared: Arc<Shared>,
    life: Arc<Life>,
    script: Arc<Script>,
    invocation: Invocation,
    nonce: String,
    (give_up, turn): (Mono, Option<Mono>),
) -> Result<Value, Failure> {
    let limits = match invocation.lateness {
        Lateness::Harmless => Call::default(),
        Lateness::Refused(call) if shared.options.on_test_clock() => call,
        Lateness::Refused(call) => life.limits(give_up, call, &shared).await?,
    };
    let not_after = limits.not_after;
    match post(&life, invocation.command(&script, false, &nonce, not_after), turn).await {
        Err(Failure::Refused(Verdict::SendText, _)) => {
            post(&life, invocation.command(&script, true, &nonce, not_after), turn).await
        }
        done => done,
    }
}

async fn post(life: &Life, cmd: Cmd, turn: Option<Mono>) -> Result<Value, Failure> {
    match turn {
        None => life.send(cmd).await,
        Some(sent_by) => life.send_confirmed(cmd, sent_by).await,
    }
}

struct Opened {
    late: bool,
    rest: Reader,
}

/// Checks the nonce and takes the time off a reply.
fn open_reply(value: Value, nonce: &str) -> Read<(Opened, StoreTime)> {
    let mut reader = Reader::new(value)?;
    if reader.text()? != nonce {
        return Err(Malformed("the reply to another request".to_owned()));
    }
    let now = reader.time()?;
    let late = match reader.text()?.as_str() {
        "late" => true,
        "ok" => false,
        other => {
            return Err(Malformed(format!(
                "{:?} in place of ok or late",
                other.chars().take(20).collect::<String>()
            )));
        }
    };
    Ok((Opened { late, rest: reader }, now))
}

/// A task that ends with whoever waits for it: a call that was dropped before it was sent is not sent.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Shared {
    pub(super) fn read_state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_state(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The connection, when there is one.
    fn life(&self) -> Result<Arc<Life>> {
        match &*self.read_state() {
            // What is not sent over a connection that is gone certainly changes nothing.
            State::Up(life) => match life.why_ended() {
                None => Ok(Arc::clone(life)),
                Some(why) => {
                    let message = format!("the store at {} is out of reach: {why}", self.address.place());
                    Err(Error::unavailable(message, Outcome::Unchanged).with_retry_after(RETRY_AT_ONCE))
                }
            },
            State::Down {
                kind,
                reason,
                retry_after,
            } => {
                let message = format!("the store at {} is out of reach: {reason}", self.address.place());
                Err(Error::new(*kind, message).with_retry_after(*retry_after))
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        let reason = "it was closed".to_owned();
        let state = State::Down {
            kind: ErrorKind::Unavailable,
            reason,
            retry_after: Duration::from_secs(1),
        };
        let before = std::mem::replace(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner), state);
        if let State::Up(life) = before {
            life.end("the store was closed");
        }
    }
}
