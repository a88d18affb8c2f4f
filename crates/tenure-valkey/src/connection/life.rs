//! One life of a connection: from the handshake to the first thing that makes it untrustworthy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::Call;
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

/// A connection that was established once.
pub(super) struct Life {
    number: u64,
    wire: MultiplexedConnection,
    driver: Driver,
    /// For what replicas have to confirm.
    patient: Option<Patient>,
    /// A connection has its own: another may lead to a server with another clock.
    store_clock: RemoteClock,
    timeouts: AtomicU32,
    ended: watch::Sender<Option<String>>,
}

impl Life {
    /// Takes over an established connection, its driver, and what it showed of the store's clock.
    pub(super) fn new(
        number: u64,
        (wire, driver): (MultiplexedConnection, Driver),
        patient: Option<Patient>,
        store_clock: RemoteClock,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            wire,
            driver,
            patient,
            store_clock,
            timeouts: AtomicU32::new(0),
            ended: watch::Sender::new(None),
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

    /// A reply showed the store's time.
    pub(super) fn learn(&self, shown: StoreTime, asked: Mono, arrived: Mono) {
        self.store_clock.learn(shown, asked, arrived);
    }

    /// Whether a reply arrived within this long.
    pub(super) fn heard_within(&self, bound: Duration, shared: &Shared) -> bool {
        let age = self.store_clock.age(shared.clock.mono());
        age.is_some_and(|age| age < bound)
    }

    /// The limits of a call that its caller gives up at a local instant. An idle connection is asked every ping interval, so
    /// one that was silent for two shows that this process was stopped, or that its clock jumped: then the store's time is
    /// asked for first.
    pub(super) async fn limits(&self, give_up: Mono, call: Call, shared: &Shared) -> Result<Call, Failure> {
        if !self.heard_within(shared.options.ping_interval * 2, shared) {
            self.ask_time(shared).await?;
        }
        Ok(self.store_clock.not_after(give_up, call))
    }

    /// Asks the store's clock.
    pub(super) async fn ask_time(&self, shared: &Shared) -> Result<(), Failure> {
        let asked = shared.clock.mono();
        let value = self.send(redis::cmd("TIME")).await?;
        let arrived = shared.clock.mono();
        let now = read_time(value).map_err(|malformed| Failure::Broken(malformed.to_string()))?;
        self.learn(now, asked, arrived);
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
