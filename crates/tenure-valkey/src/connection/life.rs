//! One life of a connection: from the handshake to the first thing that makes it untrustworthy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::time::StoreTime;
use tokio::sync::watch;

use super::link::Shared;
use super::patient::Patient;
use super::wire::Driver;
use crate::classify::{Redirection, Verdict, classify, missing_rule};
use crate::reply::{Malformed, Read, Reader};

/// After this many requests in a row without an answer the connection is given up.
pub(super) const TIMEOUTS: u32 = 3;

/// Why a request failed.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// It was not sent.
    Unsent(String),
    /// The server refused it.
    Refused(Verdict, String),
    /// It was done, and is not known to be on as many replicas as asked for.
    Unconfirmed(String),
    /// It was not answered for this long.
    Silent(Duration),
    /// The connection broke, or what came over it is no reply.
    Broken(String),
}

/// A store time, and when we got to know it.
#[derive(Debug, Clone, Copy)]
struct Reading {
    store: StoreTime,
    at: Mono,
}

/// A connection that was established once.
pub(super) struct Life {
    number: u64,
    wire: MultiplexedConnection,
    driver: Driver,
    /// For what replicas have to confirm.
    patient: Option<Patient>,
    reading: Mutex<Reading>,
    timeouts: AtomicU32,
    ended: watch::Sender<Option<String>>,
    fresh: Duration,
}

impl Life {
    /// Takes over an established connection, its driver, and the first reading of the store's clock.
    pub(super) fn new(
        number: u64,
        (wire, driver): (MultiplexedConnection, Driver),
        patient: Option<Patient>,
        first: (StoreTime, Mono),
        fresh: Duration,
    ) -> Arc<Self> {
        let reading = Mutex::new(Reading {
            store: first.0,
            at: first.1,
        });
        Arc::new(Self {
            number,
            wire,
            driver,
            patient,
            reading,
            timeouts: AtomicU32::new(0),
            ended: watch::Sender::new(None),
            fresh,
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Sends one command. Unbounded; whoever calls bounds it.
    pub(super) async fn send(&self, cmd: Cmd) -> Result<Value, Failure> {
        self.judged(send(&mut self.wire.clone(), cmd).await)
    }

    /// Has one command sent in its turn, by an instant, and waits until replicas have what it wrote. What goes wrong there
    /// does not end this life, but for a server that is no primary any more.
    pub(super) async fn send_confirmed(&self, cmd: Cmd, sent_by: Mono) -> Result<Value, Failure> {
        let Some(patient) = &self.patient else {
            return self.send(cmd).await;
        };
        let done = patient.send(cmd, sent_by).await;
        if let Err(Failure::Refused(Verdict::Leave, why)) = &done {
            self.end(why);
        }
        done
    }

    /// The connection for what replicas have to confirm, where the store's URL asks for that.
    pub(super) fn patient(&self) -> Option<&Patient> {
        self.patient.as_ref()
    }

    fn judged(&self, done: Result<Value, Failure>) -> Result<Value, Failure> {
        if let Err(Failure::Broken(why) | Failure::Refused(Verdict::Leave, why)) = &done {
            self.end(why);
        }
        done
    }

    /// Notes the store's time of a reply.
    ///
    /// The reading that promises the most is kept, since a reply that was looked at late promises too little; but not
    /// for longer than a ping interval, since the store's clock may have been set back.
    pub(super) fn learn(&self, store: StoreTime, at: Mono) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = reading.store + at.since(reading.at);
        if store >= kept || at.since(reading.at) > self.fresh {
            *reading = Reading { store, at };
        }
    }

    /// When the store's time was last learnt.
    pub(super) fn learnt_at(&self) -> Mono {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).at
    }

    /// The store's time at a local instant to come, never later than it will be: the last reply's time and what passed
    /// here since it arrived. A reading older than two ping intervals is renewed first, so that a local clock that
    /// jumps cannot stretch it.
    pub(super) async fn store_time_at(&self, instant: Mono, shared: &Shared) -> Result<StoreTime, Failure> {
        if shared.clock.mono().since(self.learnt_at()) > self.fresh * 2 {
            self.ask_time(shared).await?;
        }
        let reading = *self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(reading.store + instant.since(reading.at))
    }

    /// Asks the store's clock.
    pub(super) async fn ask_time(&self, shared: &Shared) -> Result<(), Failure> {
        let value = self.send(redis::cmd("TIME")).await?;
        let arrived = shared.clock.mono();
        let now = read_time(value).map_err(|malformed| Failure::Broken(malformed.to_string()))?;
        self.learn(now, arrived);
        Ok(())
    }

    /// A request was answered.
    pub(super) fn answered(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// A request was not answered in time.
    pub(super) fn timed_out(&self, bound: Duration) -> Error {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            self.end("three requests in a row were not answered in time");
        }
        into_error(Failure::Silent(bound))
    }

    /// A reply made no sense: nothing that comes over this connection is believed any more.
    pub(super) fn distrust(&self, what: &str, malformed: Malformed) -> Error {
        self.end("a reply made no sense");
        tracing::warn!(what, error = %malformed, "a reply from the store made no sense; connecting anew");
        Error::unavailable("the store's reply made no sense; connecting anew", Outcome::Unknown).because(malformed)
    }

    /// The outer error of a failure.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        if !matches!(failure, Failure::Broken(_)) {
            self.answered();
        }
        into_error(failure)
    }

    /// Ends it: whoever waits for an answer fails at once, and the supervisor connects anew.
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

    /// Why it has ended, if it has; the supervisor may not have noticed yet.
    pub(super) fn why_ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits for the end and tells why.
    pub(super) async fn until_ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }
}

/// Sends one command over a connection that nobody supervises (yet).
pub(super) async fn send(wire: &mut MultiplexedConnection, cmd: Cmd) -> Result<Value, Failure> {
    match wire.send_packed_command(&cmd).await {
        Ok(value) => accepted(value),
        Err(error) => Err(failure_of(&error)),
    }
}

/// A reply that may be a refusal.
pub(super) fn accepted(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(refused(error.code(), error.details().unwrap_or_default())),
        value => Ok(value),
    }
}

/// What the client's error means.
pub(super) fn failure_of(error: &RedisError) -> Failure {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => Failure::Refused(Verdict::Denied, error.to_string()),
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => {
            refused(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        }
        _ => Failure::Broken(error.to_string()),
    }
}

fn refused(code: &str, detail: &str) -> Failure {
    Failure::Refused(classify(code, detail), format!("{code} {detail}"))
}

/// How soon to ask again after a refusal that may pass.
const RETRY: Duration = Duration::from_millis(100);

/// The outer error of a failure of a request.
pub(super) fn into_error(failure: Failure) -> Error {
    match failure {
        Failure::Refused(Verdict::Denied, words) => {
            let error = match missing_rule(&words) {
                Some(rule) => Error::new(
                    ErrorKind::Denied,
                    format!(
                        "the store denies what Tenure needs: give its user the rule {rule} (docs/stores.md has them all)"
                    ),
                ),
                None => return Verdict::Denied.into_error(words),
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
            format!("{why}; it was done and a failover may lose it, so that the outcome is unknown"),
            Outcome::Unknown,
        ),
        Failure::Silent(bound) => {
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

/// Reads the reply to `TIME`.
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
