//! One established connection: from the handshake to the first sign that it cannot be trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::escape::server_words;
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;
use tokio::sync::watch;

use super::link::LinkContext;
use super::wait_connection::WaitConnection;
use super::wire::Driver;
use crate::address::Endpoint;
use crate::classify::{Redirection, RefusalClass, classify, missing_rule};
use crate::reply::{Malformed, Read, Reader};

/// This many timeouts in a row end the connection.
pub(super) const TIMEOUTS: u32 = 3;

/// Why a request failed.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The call was not sent.
    Unsent(String),
    /// The server refused the call.
    Refused(RefusalClass, String),
    /// The call took effect, but too few replicas confirmed it.
    Unconfirmed(String),
    /// No reply arrived within this time.
    TimedOut(Duration),
    /// The connection broke, or a reply was malformed.
    Broken(String),
}

/// An established connection.
pub(super) struct LiveConnection {
    number: u64,
    at: Endpoint,
    wire: MultiplexedConnection,
    driver: Driver,
    /// The second connection, for calls that replicas must confirm.
    waiting: Option<WaitConnection>,
    /// The clock estimate belongs to one connection: the next one may lead to a server with another clock.
    store_clock: RemoteClock,
    timeouts: AtomicU32,
    ended: watch::Sender<Option<String>>,
}

impl LiveConnection {
    /// Takes over an established connection, its driver, and the first clock reading.
    pub(super) fn new(
        number: u64,
        (wire, driver): (MultiplexedConnection, Driver),
        waiting: Option<WaitConnection>,
        store_clock: RemoteClock,
        at: Endpoint,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            at,
            wire,
            driver,
            waiting,
            store_clock,
            timeouts: AtomicU32::new(0),
            ended: watch::Sender::new(None),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The server.
    pub(super) fn at(&self) -> &Endpoint {
        &self.at
    }

    /// Sends one command. Not bounded in time; the caller bounds it.
    pub(super) async fn send(&self, cmd: Cmd) -> Result<Value, Failure> {
        self.judged(send(&mut self.wire.clone(), cmd).await)
    }

    /// Queues one command on the connection for `WAIT`, to be sent by an instant, and waits until replicas have
    /// confirmed it. A failure there does not end this connection, unless the server is no longer a primary.
    pub(super) async fn send_confirmed(&self, cmd: Cmd, sent_by: Mono) -> Result<Value, Failure> {
        let Some(waiting) = &self.waiting else {
            return self.send(cmd).await;
        };
        let done = waiting.send(cmd, sent_by).await;
        if let Err(Failure::Refused(RefusalClass::Reconnect, why)) = &done {
            self.end(why);
        }
        done
    }

    /// The connection for calls that replicas must confirm, if the URL asks for it.
    pub(super) fn waiting(&self) -> Option<&WaitConnection> {
        self.waiting.as_ref()
    }

    fn judged(&self, done: Result<Value, Failure>) -> Result<Value, Failure> {
        if let Err(Failure::Broken(why) | Failure::Refused(RefusalClass::Reconnect, why)) = &done {
            self.end(why);
        }
        done
    }

    /// Records a reading of the store's time.
    pub(super) fn learn(&self, shown: StoreTime, asked: Mono, arrived: Mono) {
        self.store_clock.learn(shown, asked, arrived);
    }

    /// Whether a reply arrived within this time.
    pub(super) fn heard_within(&self, bound: Duration, context: &LinkContext) -> bool {
        let age = self.store_clock.age(context.clock.mono());
        age.is_some_and(|age| age < bound)
    }

    /// The limits of a call whose caller gives up at a local instant. An idle connection is pinged every ping interval.
    /// Two silent intervals mean that this process was stopped or that its clock jumped, so the store's time is read
    /// first.
    pub(super) async fn limits(&self, give_up: Mono, call: Call, context: &LinkContext) -> Result<Call, Failure> {
        if !self.heard_within(context.options.ping_interval * 2, context) {
            self.ask_time(context).await?;
        }
        Ok(self.store_clock.not_after(give_up, call))
    }

    /// Reads the store's clock.
    pub(super) async fn ask_time(&self, context: &LinkContext) -> Result<(), Failure> {
        let asked = context.clock.mono();
        let value = self.send(redis::cmd("TIME")).await?;
        let arrived = context.clock.mono();
        let now = read_time(value).map_err(|malformed| Failure::Broken(malformed.to_string()))?;
        self.learn(now, asked, arrived);
        Ok(())
    }

    /// Resets the count of timeouts.
    pub(super) fn answered(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Counts a request that timed out.
    pub(super) fn timed_out(&self, bound: Duration) -> Error {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            self.end("three requests in a row were not answered in time");
        }
        into_error(Failure::TimedOut(bound))
    }

    /// Ends the connection after a malformed reply: no later reply on it can be trusted.
    pub(super) fn distrust(&self, what: &str, malformed: Malformed) -> Error {
        self.end("a reply was malformed");
        tracing::warn!(what, error = %malformed, "malformed reply from the store; reconnecting");
        Error::unavailable("the store's reply is malformed; reconnecting", Outcome::Unknown).because(malformed)
    }

    /// Converts a failure to the public error.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        if !matches!(failure, Failure::Broken(_)) {
            self.answered();
        }
        into_error(failure)
    }

    /// Ends the connection: pending calls fail at once, and the supervisor reconnects.
    pub(super) fn end(&self, why: &str) {
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(why.to_owned());
            }
            first
        });
        if first {
            self.driver.abort();
        }
    }

    /// The reason it ended, if it has; the supervisor may not have noticed yet.
    pub(super) fn why_ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits for the end and returns the reason.
    pub(super) async fn until_ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }
}

/// Sends one command over a connection that is not supervised (yet).
pub(super) async fn send(wire: &mut MultiplexedConnection, cmd: Cmd) -> Result<Value, Failure> {
    match wire.send_packed_command(&cmd).await {
        Ok(value) => accepted(value),
        Err(error) => Err(failure_of(&error)),
    }
}

/// Turns an error reply into a failure.
pub(super) fn accepted(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(refused(error.code(), error.details().unwrap_or_default())),
        value => Ok(value),
    }
}

/// Classifies an error of the client library.
pub(super) fn failure_of(error: &RedisError) -> Failure {
    match error.kind() {
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => {
            refused(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        }
        _ => Failure::Broken(error.to_string()),
    }
}

/// A refusal by its class, with the server's words.
pub(super) fn refused(code: &str, detail: &str) -> Failure {
    Failure::Refused(classify(code, detail), words(code, detail))
}

/// The server's words, without the arguments of an unknown command, which may be a password or the text of a script.
pub(super) fn words(code: &str, detail: &str) -> String {
    let detail = detail.split(", with args beginning with:").next().unwrap_or_default();
    server_words(&format!("{code} {detail}"))
}

/// When to retry after a temporary refusal.
const RETRY: Duration = Duration::from_millis(100);

/// Converts a failure of a request to the public error.
pub(super) fn into_error(failure: Failure) -> Error {
    match failure {
        Failure::Refused(RefusalClass::Denied, words) => {
            let error = match missing_rule(&words) {
                Some(rule) => Error::new(
                    ErrorKind::Denied,
                    format!(
                        "the store denies what Tenure needs: give its user the rule {rule} (docs/stores.md has them all)"
                    ),
                ),
                None => return RefusalClass::Denied.into_error(words),
            };
            error.because(words)
        }
        Failure::Refused(verdict, words) => {
            let error = match Redirection::read(&words) {
                Some(redirection) => verdict.into_error(redirection),
                None => verdict.into_error(words),
            };
            match error.kind() {
                ErrorKind::Unavailable => error.with_retry_after(RETRY),
                _ => error,
            }
        }
        Failure::Unsent(why) => Error::unavailable(why, Outcome::Unchanged).with_retry_after(RETRY),
        Failure::Unconfirmed(why) => Error::unavailable(
            format!("{why}; it took effect, but a failover may lose it: the outcome is unknown"),
            Outcome::Unknown,
        ),
        Failure::TimedOut(bound) => {
            let bound = tenure_core::time::show_duration(bound);
            Error::unavailable(
                format!("the store did not answer within {bound}; the outcome is unknown"),
                Outcome::Unknown,
            )
        }
        Failure::Broken(why) => Error::unavailable(
            "the connection to the store broke; the outcome is unknown",
            Outcome::Unknown,
        )
        .because(why),
    }
}

/// Parses the reply to `TIME`.
pub(super) fn read_time(value: Value) -> Read<StoreTime> {
    let mut reader = Reader::new(value)?;
    let (seconds, micros) = (reader.number()?, reader.number()?);
    let total = seconds
        .checked_mul(1_000_000)
        .and_then(|total| total.checked_add(micros));
    total
        .map(StoreTime::from_micros)
        .ok_or_else(|| Malformed(format!("the time {seconds} s")))
}
