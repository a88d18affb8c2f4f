//! The connection to one server: a fail-fast handle over a supervisor that maintains one multiplexed connection.
//!
//! While the server is unreachable every call fails at once and changes nothing; nothing is queued or replayed. Every
//! call has a deadline, and three missed deadlines in a row end the connection. Every reply carries the store's time.
//! From it comes the not-after time of the next mutating call, so a call that timed out cannot take effect later. All
//! work runs on the runtime that was current when the connection was opened: calls may come from any other runtime,
//! including one with blocked threads.

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

use super::live::{self, Failure, LiveConnection};
use super::options::{ConnectionOptions, Needs};
use super::sentinel::MajorityVote;
use super::supervisor;
use super::wait_connection::{self, WaitConnection};
use crate::address::Address;
use crate::classify::RefusalClass;
use crate::reply::{Malformed, Read, Reader};
use crate::script::{Invocation, Lateness, Script};

/// A handle to a supervised connection to one server. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub(super) struct Link {
    context: Arc<LinkContext>,
    _last: Arc<CloseOnDrop>,
}

/// The state that the handles and the supervisor share.
pub(super) struct LinkContext {
    pub(super) address: Address,
    pub(super) options: ConnectionOptions,
    pub(super) needs: Needs,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
    /// Numbers the connections of all links of a store.
    pub(super) generations: Arc<AtomicU64>,
    /// The votes of the sentinels against the highest epoch.
    pub(super) majority_vote: Mutex<MajorityVote>,
    state: RwLock<LinkState>,
    nonce: AtomicU64,
    in_flight: Arc<Semaphore>,
    closed: watch::Sender<bool>,
    pub(super) tried: watch::Sender<bool>,
}

pub(super) enum LinkState {
    Up(Arc<LiveConnection>),
    Down {
        kind: ErrorKind,
        reason: String,
        retry_after: Duration,
    },
}

struct CloseOnDrop(std::sync::Weak<LinkContext>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(context) = self.0.upgrade() {
            context.close();
        }
    }
}

/// A raw reply, to be read by [`Link::open`].
pub(super) struct RawReply {
    value: Value,
    asked: Mono,
    arrived: Mono,
    live: Arc<LiveConnection>,
    nonce: String,
}

impl Link {
    /// Opens a link. It connects in the background and reconnects on its own.
    pub(super) fn start(
        address: Address,
        options: ConnectionOptions,
        needs: Needs,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        generations: Arc<AtomicU64>,
    ) -> Self {
        let context = Arc::new(LinkContext {
            nonce: AtomicU64::new(clock.entropy()),
            in_flight: Arc::new(Semaphore::new(options.in_flight)),
            closed: watch::Sender::new(false),
            state: RwLock::new(LinkState::Down {
                kind: ErrorKind::Unavailable,
                reason: "not connected yet".to_owned(),
                retry_after: supervisor::FIRST_BACKOFF,
            }),
            tried: watch::Sender::new(false),
            majority_vote: Mutex::default(),
            address,
            options,
            needs,
            clock,
            runtime,
            generations,
        });
        supervisor::start(&context);
        let last = Arc::new(CloseOnDrop(Arc::downgrade(&context)));
        Self { context, _last: last }
    }

    pub(super) fn context(&self) -> Arc<LinkContext> {
        Arc::clone(&self.context)
    }

    /// Whether two handles share a link.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.context, &other.context)
    }

    pub(super) fn place(&self) -> &str {
        self.context.address.place()
    }

    pub(super) fn options(&self) -> &ConnectionOptions {
        &self.context.options
    }

    pub(super) fn answers_within(&self) -> Option<Duration> {
        let confirms = self.context.address.wait().is_some();
        (!confirms).then_some(self.context.options.request_timeout)
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.context.clock
    }

    pub(super) fn health(&self) -> Health {
        match &*self.context.read_state() {
            LinkState::Up(live) => {
                let why = live
                    .why_ended()
                    .or_else(|| live.waiting().and_then(WaitConnection::unavailable_reason));
                why.map_or(Health::Up, |reason| Health::Down { reason })
            }
            LinkState::Down { reason, .. } => Health::Down { reason: reason.clone() },
        }
    }

    pub(super) fn why_down(&self) -> Option<ErrorKind> {
        match &*self.context.read_state() {
            LinkState::Up(_) => None,
            LinkState::Down { kind, .. } => Some(*kind),
        }
    }

    pub(super) fn close(&self) {
        self.context.close();
    }

    /// Waits until the connection is up or has failed for the first time; at most the connect timeout.
    pub(super) async fn first_try(&self) {
        // An error means that the supervisor is gone.
        let _ = self.context.tried.subscribe().wait_for(|tried| *tried).await;
    }

    /// Calls a script.
    pub(super) async fn call_script(&self, script: &Arc<Script>, invocation: Invocation) -> Result<RawReply> {
        let live = self.context.live()?;
        let mut nonce = format!("{:x}", self.context.nonce.fetch_add(1, Ordering::Relaxed));
        if let Some(tag) = &invocation.tag {
            nonce.extend([" ", tag]);
        }
        let bound = self.context.options.request_timeout;
        let began = self.context.clock.mono();
        let wait = self.context.address.wait().filter(|_| invocation.confirmed);
        let turn = wait.map(|_| began + wait_connection::queue_budget(bound));
        let work = exchange(
            Arc::clone(&self.context),
            Arc::clone(&live),
            Arc::clone(script),
            invocation,
            nonce.clone(),
            (began + bound, turn),
        );
        let (value, arrived) = match wait {
            None => self.run(&live, bound, work).await?,
            Some(wait) => {
                // The bound covers the queue, the step, and the wait for replicas.
                let bound = wait_connection::queue_budget(bound) + bound + wait.within;
                let done = self.bounded(bound, work).await?;
                done.unwrap_or(Err(Failure::TimedOut(bound)))
                    .map_err(live::into_error)?
            }
        };
        Ok(RawReply {
            value,
            asked: began,
            arrived,
            live,
            nonce,
        })
    }

    /// Reads the part of a reply after nonce and time.
    pub(super) fn open<T>(
        script: &Script,
        reply: RawReply,
        read: impl FnOnce(&mut Reader, StoreTime) -> Read<T>,
    ) -> Result<T> {
        let live = reply.live;
        let opened = open_reply(reply.value, &reply.nonce).and_then(|(mut reader, now)| {
            live.learn(now, reply.asked, reply.arrived);
            match reader.late {
                true => Ok(None),
                false => read(&mut reader.rest, now).map(Some),
            }
        });
        match opened {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(Error::too_late()),
            Err(malformed) => Err(live.distrust(script.name(), malformed)),
        }
    }

    /// Sends one plain command.
    pub(super) async fn command(&self, cmd: Cmd) -> Result<Value> {
        let live = self.context.live()?;
        let work = {
            let live = Arc::clone(&live);
            async move { live.send(cmd).await }
        };
        let (value, _) = self.run(&live, self.context.options.request_timeout, work).await?;
        Ok(value)
    }

    /// Reads the store's clock. With a test clock: the time that the test set.
    pub(super) async fn time(&self) -> Result<StoreTime> {
        let live = self.context.live()?;
        if self.context.options.on_test_clock() {
            let value = self.command(redis::cmd("GET").arg(TEST_NOW).to_owned()).await?;
            let read = Reader::new(Value::Array(vec![value])).and_then(|mut reader| reader.maybe_number());
            let micros = read.map_err(|malformed| live.distrust("GET", malformed))?;
            return Ok(StoreTime::from_micros(micros.unwrap_or(0)));
        }
        let asked = self.context.clock.mono();
        let work = {
            let live = Arc::clone(&live);
            async move { live.send(redis::cmd("TIME")).await }
        };
        let (value, arrived) = self.run(&live, self.context.options.request_timeout, work).await?;
        let now = live::read_time(value).map_err(|malformed| live.distrust("TIME", malformed))?;
        live.learn(now, asked, arrived);
        Ok(now)
    }

    /// The number of the current connection, different for each reconnect; `None` while disconnected.
    pub(super) fn generation(&self) -> Option<u64> {
        self.context.live().ok().map(|live| live.number())
    }

    /// Runs a call over the main connection, which ends after too many timeouts in a row.
    async fn run(
        &self,
        live: &Arc<LiveConnection>,
        bound: Duration,
        work: impl Future<Output = Result<Value, Failure>> + Send + 'static,
    ) -> Result<(Value, Mono)> {
        match self.bounded(bound, work).await? {
            Some(Ok(done)) => {
                live.answered();
                Ok(done)
            }
            Some(Err(failure)) => Err(live.fail(failure)),
            None => Err(live.timed_out(bound)),
        }
    }

    /// Runs a call on the link's own runtime, bounded in time and by the calls in flight. `None` when it timed out.
    async fn bounded(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<Value, Failure>> + Send + 'static,
    ) -> Result<Option<Result<(Value, Mono), Failure>>> {
        let context = &self.context;
        let Ok(permit) = Arc::clone(&context.in_flight).try_acquire_owned() else {
            let message = format!(
                "{} requests to the store are already in flight",
                context.options.in_flight
            );
            return Err(
                Error::unavailable(message, Outcome::Unchanged).with_retry_after(context.options.request_timeout)
            );
        };
        let clock = Arc::clone(&context.clock);
        let task = context.runtime.spawn(async move {
            let done = within(&*clock, bound, work).await;
            drop(permit);
            done.map(|done| done.map(|value| (value, clock.mono())))
        });
        AbortOnDrop(task).join().await.ok_or_else(|| {
            Error::unavailable(
                "the runtime that the store was opened on has shut down",
                Outcome::Unknown,
            )
        })
    }
}

/// The retry hint while the supervisor is about to reconnect.
const RETRY_AT_ONCE: Duration = Duration::from_millis(100);

/// The key that holds the time of a test clock.
pub(crate) const TEST_NOW: &str = "tenure:test:now";

/// Sends a script call, and the script's text when the server does not have it. With `turn` set, replicas must confirm
/// the call, and it is sent by that instant or not at all.
async fn exchange(
    context: Arc<LinkContext>,
    live: Arc<LiveConnection>,
    script: Arc<Script>,
    invocation: Invocation,
    nonce: String,
    (give_up, turn): (Mono, Option<Mono>),
) -> Result<Value, Failure> {
    let limits = match invocation.lateness {
        Lateness::Harmless => Call::default(),
        Lateness::Refused(call) if context.options.on_test_clock() => call,
        Lateness::Refused(call) => live.limits(give_up, call, &context).await?,
    };
    let not_after = limits.not_after;
    match post(&live, invocation.command(&script, false, &nonce, not_after), turn).await {
        Err(Failure::Refused(RefusalClass::SendText, _)) => {
            post(&live, invocation.command(&script, true, &nonce, not_after), turn).await
        }
        done => done,
    }
}

async fn post(live: &LiveConnection, cmd: Cmd, turn: Option<Mono>) -> Result<Value, Failure> {
    match turn {
        None => live.send(cmd).await,
        Some(sent_by) => live.send_confirmed(cmd, sent_by).await,
    }
}

struct OpenedReply {
    late: bool,
    rest: Reader,
}

/// Checks the nonce and removes the time from a reply.
fn open_reply(value: Value, nonce: &str) -> Read<(OpenedReply, StoreTime)> {
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
    Ok((OpenedReply { late, rest: reader }, now))
}

/// A task that is aborted when its caller is dropped: a call that was not sent by then is never sent.
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

impl LinkContext {
    pub(super) fn read_state(&self) -> std::sync::RwLockReadGuard<'_, LinkState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_state(&self, state: LinkState) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The established connection, if any.
    pub(super) fn live(&self) -> Result<Arc<LiveConnection>> {
        match &*self.read_state() {
            // A call that is not sent on an ended connection certainly changes nothing.
            LinkState::Up(live) => match live.why_ended() {
                None => Ok(Arc::clone(live)),
                Some(why) => {
                    let message = format!("the store at {} is out of reach: {why}", self.address.place());
                    Err(Error::unavailable(message, Outcome::Unchanged).with_retry_after(RETRY_AT_ONCE))
                }
            },
            LinkState::Down {
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
        let state = LinkState::Down {
            kind: ErrorKind::Unavailable,
            reason,
            retry_after: Duration::from_secs(1),
        };
        let before = std::mem::replace(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner), state);
        if let LinkState::Up(live) = before {
            live.end("the store was closed");
        }
    }
}
