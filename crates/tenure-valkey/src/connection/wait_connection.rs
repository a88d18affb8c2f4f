//! The connection for calls that replicas must confirm (`wait=N`), beside the main connection.
//!
//! A `WAIT` blocks every later command on its connection, so these calls have a connection of their own. One task sends
//! on it: calls that arrive during a `WAIT` are sent as one batch after it, followed by one `WAIT`. Each call therefore
//! waits for at most two `WAIT`s, the previous one and its own. A call that would wait longer is refused
//! without being sent.
//!
//! A failure here is contained: this connection has its own pings and its own count of timeouts, and reconnects alone.
//! Only a server that is no longer a primary also ends the main connection.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, Outcome};
use tenure_core::time::micros;
use tokio::sync::{mpsc, oneshot};

use super::link::LinkContext;
use super::live::{self, Failure, LiveConnection, TIMEOUTS};
use super::supervisor::{backoff, full_jitter};
use super::wire::{self, Driver};
use crate::address::{Endpoint, Wait};
use crate::classify::{RefusalClass, missing_rule};

/// How many calls may be queued; further calls fail immediately.
const MAX_QUEUED: usize = 1024;
/// How many calls one batch holds: the server runs a batch without a pause, and one call may be for hundreds of leases.
const MAX_BATCH: usize = 16;

/// A queued call, the latest instant to send it, and the channel for its reply.
struct QueuedCall {
    cmd: Cmd,
    sent_by: Mono,
    reply: oneshot::Sender<Result<Value, Failure>>,
}

impl QueuedCall {
    fn answer(self, done: Result<Value, Failure>) {
        // The caller may be gone.
        let _ = self.reply.send(done);
    }
}

/// Accepts calls and reports why the connection is down.
pub(super) struct WaitConnection {
    calls: mpsc::Sender<QueuedCall>,
    unavailable: Mutex<Option<String>>,
}

/// The state of [`run`].
pub(super) struct WaitTask {
    calls: mpsc::Receiver<QueuedCall>,
    wire: (MultiplexedConnection, Driver),
    at: Endpoint,
    wait: Wait,
}

/// Takes over a connection to this server.
pub(super) fn start(wire: (MultiplexedConnection, Driver), at: Endpoint, wait: Wait) -> (WaitConnection, WaitTask) {
    let (sender, calls) = mpsc::channel(MAX_QUEUED);
    let waiting = WaitConnection {
        calls: sender,
        unavailable: Mutex::new(None),
    };
    (waiting, WaitTask { calls, wire, at, wait })
}

impl WaitConnection {
    /// Queues a call, and waits until replicas have confirmed it. Not bounded in time; the caller bounds it.
    pub(super) async fn send(&self, cmd: Cmd, sent_by: Mono) -> Result<Value, Failure> {
        let (reply, answer) = oneshot::channel();
        let call = QueuedCall { cmd, sent_by, reply };
        if self.calls.try_send(call).is_err() {
            return Err(Failure::Unsent(
                "too many calls are already waiting for replicas".to_owned(),
            ));
        }
        // The task ended without saying whether it sent the call.
        answer
            .await
            .unwrap_or_else(|_| Err(Failure::Broken("the connection ended".to_owned())))
    }

    /// Why calls cannot be confirmed at the moment.
    pub(super) fn unavailable_reason(&self) -> Option<String> {
        self.unavailable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_unavailable(&self, why: Option<String>) {
        *self.unavailable.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// Sends the queued calls, and reconnects whenever the connection is lost. Never returns.
pub(super) async fn run(
    context: &LinkContext,
    live: &LiveConnection,
    waiting: &WaitConnection,
    wait_task: WaitTask,
) -> String {
    let WaitTask {
        mut calls,
        mut wire,
        at,
        wait,
    } = wait_task;
    loop {
        let sender = BatchSender { context, live, wait };
        let why = sender.serve(&mut calls, &mut wire.0).await;
        tracing::warn!(%at, why, "the connection for WAIT is lost; reconnecting");
        drop(wire);
        let why = format!("the connection for WAIT (wait=N) is lost: {why}");
        waiting.set_unavailable(Some(why.clone()));
        let mut opening = std::pin::pin!(reopen(context, waiting, &at));
        wire = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                Some(call) = calls.recv() => call.answer(Err(Failure::Unsent(why.clone()))),
            }
        };
        waiting.set_unavailable(None);
    }
}

/// Retries until there is a connection.
async fn reopen(context: &LinkContext, waiting: &WaitConnection, at: &Endpoint) -> (MultiplexedConnection, Driver) {
    let mut failures = 0u32;
    loop {
        context
            .clock
            .sleep(full_jitter(&*context.clock, backoff(failures)))
            .await;
        failures = failures.saturating_add(1);
        let (handshake, tls) = (context.address.handshake(), context.address.tls());
        let opening = wire::open(&context.runtime, at, handshake, tls);
        let opened = within(&*context.clock, context.options.connect_timeout, opening).await;
        match opened.unwrap_or_else(|| Err(Error::unavailable("no answer in time", Outcome::Unchanged))) {
            Ok(opened) => return opened,
            Err(error) => waiting.set_unavailable(Some(format!("no connection for WAIT (wait=N): {}", error.chain()))),
        }
    }
}

/// The result of one exchange.
enum ExchangeResult {
    Answered,
    TimedOut,
    Broken(String),
}

struct BatchSender<'a> {
    context: &'a LinkContext,
    live: &'a LiveConnection,
    wait: Wait,
}

impl BatchSender<'_> {
    /// Serves until the connection is lost; returns the reason.
    async fn serve(&self, calls: &mut mpsc::Receiver<QueuedCall>, wire: &mut MultiplexedConnection) -> String {
        let (clock, mut timeouts) = (&*self.context.clock, 0);
        loop {
            let result = match within(clock, self.context.options.ping_interval, calls.recv()).await {
                Some(Some(first)) => self.exchange(wire, self.batch(first, calls)).await,
                Some(None) => return "the link was dropped".to_owned(),
                None => self.ping(wire).await,
            };
            match result {
                ExchangeResult::Answered => timeouts = 0,
                ExchangeResult::TimedOut => timeouts += 1,
                ExchangeResult::Broken(why) => return why,
            }
            if timeouts >= TIMEOUTS {
                return "three requests in a row were not answered in time".to_owned();
            }
        }
    }

    /// The next batch: the calls whose caller still waits and that may still be sent.
    fn batch(&self, first: QueuedCall, calls: &mut mpsc::Receiver<QueuedCall>) -> Vec<QueuedCall> {
        let (mut batch, mut next, now) = (Vec::new(), Some(first), self.context.clock.mono());
        while let Some(call) = next {
            if call.sent_by < now {
                let why = "replicas are slow to confirm, and other calls are queued already";
                call.answer(Err(Failure::Unsent(why.to_owned())));
            } else if !call.reply.is_closed() {
                batch.push(call);
            }
            next = match batch.len() < MAX_BATCH {
                true => calls.try_recv().ok(),
                false => None,
            };
        }
        batch
    }

    /// Sends calls and a `WAIT` after them, in one round trip to the primary.
    async fn exchange(&self, wire: &mut MultiplexedConnection, batch: Vec<QueuedCall>) -> ExchangeResult {
        if batch.is_empty() {
            return ExchangeResult::Answered;
        }
        let mut pipe = redis::pipe();
        for call in &batch {
            pipe.add_command(call.cmd.clone());
        }
        pipe.cmd("WAIT")
            .arg(self.wait.replicas)
            .arg(micros(self.wait.within).div_ceil(1000));
        let bound = self.context.options.request_timeout + self.wait.within;
        let expected = batch.len() + 1;
        let sending = wire.send_packed_commands(&pipe, 0, expected);
        let (failure, result) = match within(&*self.context.clock, bound, sending).await {
            Some(Ok(replies)) if replies.len() == expected => {
                self.deliver(batch, replies);
                return ExchangeResult::Answered;
            }
            Some(Ok(replies)) => broken(format!("{} replies to {expected} commands", replies.len())),
            Some(Err(error)) => broken(error.to_string()),
            None => (Failure::TimedOut(bound), ExchangeResult::TimedOut),
        };
        for call in batch {
            call.answer(Err(failure.clone()));
        }
        result
    }

    fn deliver(&self, batch: Vec<QueuedCall>, mut replies: Vec<Value>) {
        let confirmed = replies.pop().unwrap_or(Value::Nil);
        for (call, done) in batch.into_iter().zip(replies) {
            let done = live::accepted(done).and_then(|done| match unconfirmed(&confirmed, self.wait) {
                None => Ok(done),
                Some(why) => Err(Failure::Unconfirmed(why)),
            });
            call.answer(done);
        }
    }

    /// Pings an idle connection.
    async fn ping(&self, wire: &mut MultiplexedConnection) -> ExchangeResult {
        let bound = self.context.options.request_timeout;
        match within(&*self.context.clock, bound, live::send(wire, redis::cmd("TIME"))).await {
            Some(Err(Failure::Broken(why))) => ExchangeResult::Broken(why),
            Some(Err(Failure::Refused(RefusalClass::Reconnect, why))) => {
                self.live.end(&why);
                ExchangeResult::Answered
            }
            Some(_) => ExchangeResult::Answered,
            None => ExchangeResult::TimedOut,
        }
    }
}

fn broken(why: String) -> (Failure, ExchangeResult) {
    (Failure::Broken(why.clone()), ExchangeResult::Broken(why))
}

/// Why the calls before a `WAIT` are not known to be on enough replicas. A refused `WAIT` says nothing about these
/// calls: they took effect.
fn unconfirmed(reply: &Value, wait: Wait) -> Option<String> {
    match reply {
        Value::Int(replicas) if *replicas >= i64::from(wait.replicas) => None,
        Value::Int(replicas) => Some(format!("{replicas} of {} replicas confirmed in time", wait.replicas)),
        Value::ServerError(error) => {
            let words = live::words(error.code(), error.details().unwrap_or_default());
            let rule = missing_rule(&words).map(|rule| format!("; give its user the rule {rule}"));
            let rule = rule.unwrap_or_default();
            Some(format!("the store refuses to wait for replicas ({words}){rule}"))
        }
        other => Some(format!("WAIT was answered with {other:?}")),
    }
}

/// How long a call may be queued: the server then still has the same time to run it.
pub(super) fn queue_budget(request_timeout: Duration) -> Duration {
    request_timeout / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_replicas_are_required() {
        let wait = Wait {
            replicas: 2,
            within: Duration::from_millis(200),
        };
        assert_eq!(unconfirmed(&Value::Int(2), wait), None);
        assert_eq!(unconfirmed(&Value::Int(3), wait), None);
        let short = unconfirmed(&Value::Int(1), wait);
        assert_eq!(short.as_deref(), Some("1 of 2 replicas confirmed in time"));
        assert!(unconfirmed(&Value::Okay, wait).is_some());
    }
}
