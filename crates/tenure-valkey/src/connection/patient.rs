//! The connection for what replicas have to confirm (`wait=N`), beside the one for everything else.
//!
//! Whatever comes after a `WAIT` on its connection waits with it. So these calls have a connection of their own, and one
//! task sends on it: calls that come while replicas are waited for go together once that is over, with one `WAIT` after
//! all of them. However many there are, each waits for two `WAIT`s at most, its own and the one before; a call whose turn
//! would come later than that is refused, and was not sent.
//!
//! What goes wrong here stays here: it is asked whether it still works, has its own count of silences, and is made anew
//! alone. Only a server that is no primary any more ends the other connection as well.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, Outcome};
use tenure_core::time::micros;
use tokio::sync::{mpsc, oneshot};

use super::life::{self, Failure, Life, TIMEOUTS};
use super::link::Shared;
use super::supervisor::{backoff, full_jitter};
use super::wire::{self, Driver};
use crate::address::{Endpoint, Wait};
use crate::classify::{Verdict, missing_rule};

/// How many calls may wait for their turn; more fail at once.
const WAITING: usize = 1024;
/// How many calls go together: a server runs them in one go, and a call may be for hundreds of leases.
const TOGETHER: usize = 16;

/// A call, until when it may be sent, and where its reply goes.
struct Job {
    cmd: Cmd,
    sent_by: Mono,
    reply: oneshot::Sender<Result<Value, Failure>>,
}

impl Job {
    fn answer(self, done: Result<Value, Failure>) {
        // Whoever asked may be gone.
        let _ = self.reply.send(done);
    }
}

/// Takes calls and tells how the connection is.
pub(super) struct Patient {
    jobs: mpsc::Sender<Job>,
    away: Mutex<Option<String>>,
}

/// What [`keep`] needs.
pub(super) struct Duty {
    jobs: mpsc::Receiver<Job>,
    wire: (MultiplexedConnection, Driver),
    at: Endpoint,
    wait: Wait,
}

/// Takes over a connection that was just made to this server.
pub(super) fn begin(wire: (MultiplexedConnection, Driver), at: Endpoint, wait: Wait) -> (Patient, Duty) {
    let (sender, jobs) = mpsc::channel(WAITING);
    let patient = Patient {
        jobs: sender,
        away: Mutex::new(None),
    };
    (patient, Duty { jobs, wire, at, wait })
}

impl Patient {
    /// Has a call sent in its turn, and waits until replicas have what it wrote. Unbounded; whoever calls bounds it.
    pub(super) async fn send(&self, cmd: Cmd, sent_by: Mono) -> Result<Value, Failure> {
        let (reply, answer) = oneshot::channel();
        let job = Job { cmd, sent_by, reply };
        if self.jobs.try_send(job).is_err() {
            return Err(Failure::Unsent("too many calls wait for replicas already".to_owned()));
        }
        // Nobody says any more whether it was sent.
        answer
            .await
            .unwrap_or_else(|_| Err(Failure::Broken("the connection ended".to_owned())))
    }

    /// Why nothing can be confirmed just now.
    pub(super) fn why_away(&self) -> Option<String> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_away(&self, why: Option<String>) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// Sends what is to be confirmed, and makes the connection anew whenever it is lost. Returns never.
pub(super) async fn keep(shared: &Shared, life: &Life, patient: &Patient, duty: Duty) -> String {
    let Duty {
        mut jobs,
        mut wire,
        at,
        wait,
    } = duty;
    loop {
        let sender = Sender { shared, life, wait };
        let why = sender.serve(&mut jobs, &mut wire.0).await;
        tracing::warn!(%at, why, "the connection for what replicas confirm is lost; making another");
        drop(wire);
        let why = format!("the connection for what replicas confirm (wait=N) is lost: {why}");
        patient.set_away(Some(why.clone()));
        let mut opening = std::pin::pin!(reopen(shared, patient, &at));
        wire = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                Some(job) = jobs.recv() => job.answer(Err(Failure::Unsent(why.clone()))),
            }
        };
        patient.set_away(None);
    }
}

/// Tries until there is a connection.
async fn reopen(shared: &Shared, patient: &Patient, at: &Endpoint) -> (MultiplexedConnection, Driver) {
    let mut failures = 0u32;
    loop {
        shared.clock.sleep(full_jitter(&*shared.clock, backoff(failures))).await;
        failures = failures.saturating_add(1);
        let (handshake, tls) = (shared.address.handshake(), shared.address.tls());
        let opening = wire::open(&shared.runtime, at, handshake, tls);
        let opened = within(&*shared.clock, shared.options.connect_timeout, opening).await;
        match opened.unwrap_or_else(|| Err(Error::unavailable("no answer in time", Outcome::Unchanged))) {
            Ok(opened) => return opened,
            Err(error) => patient.set_away(Some(format!(
                "no connection for what replicas confirm (wait=N): {}",
                error.chain()
            ))),
        }
    }
}

/// What became of one exchange.
enum Heard {
    Answer,
    Silence,
    Broken(String),
}

struct Sender<'a> {
    shared: &'a Shared,
    life: &'a Life,
    wait: Wait,
}

impl Sender<'_> {
    /// Serves until the connection is lost; tells why.
    async fn serve(&self, jobs: &mut mpsc::Receiver<Job>, wire: &mut MultiplexedConnection) -> String {
        let (clock, mut silences) = (&*self.shared.clock, 0);
        loop {
            let heard = match within(clock, self.shared.options.ping_interval, jobs.recv()).await {
                Some(Some(first)) => self.exchange(wire, self.batch(first, jobs)).await,
                Some(None) => return "nobody asks any more".to_owned(),
                None => self.ping(wire).await,
            };
            match heard {
                Heard::Answer => silences = 0,
                Heard::Silence => silences += 1,
                Heard::Broken(why) => return why,
            }
            if silences >= TIMEOUTS {
                return "three requests in a row were not answered in time".to_owned();
            }
        }
    }

    /// What goes together: calls that somebody still waits for and that may still be sent.
    fn batch(&self, first: Job, jobs: &mut mpsc::Receiver<Job>) -> Vec<Job> {
        let (mut batch, mut next, now) = (Vec::new(), Some(first), self.shared.clock.mono());
        while let Some(job) = next {
            if job.sent_by < now {
                let why = "replicas are slow to confirm, and other calls wait for them already";
                job.answer(Err(Failure::Unsent(why.to_owned())));
            } else if !job.reply.is_closed() {
                batch.push(job);
            }
            next = match batch.len() < TOGETHER {
                true => jobs.try_recv().ok(),
                false => None,
            };
        }
        batch
    }

    /// Sends calls and a `WAIT` after them, in one round trip to the primary.
    async fn exchange(&self, wire: &mut MultiplexedConnection, batch: Vec<Job>) -> Heard {
        if batch.is_empty() {
            return Heard::Answer;
        }
        let mut pipe = redis::pipe();
        for job in &batch {
            pipe.add_command(job.cmd.clone());
        }
        pipe.cmd("WAIT")
            .arg(self.wait.replicas)
            .arg(micros(self.wait.within).div_ceil(1000));
        let bound = self.shared.options.request_timeout + self.wait.within;
        let expected = batch.len() + 1;
        let sending = wire.send_packed_commands(&pipe, 0, expected);
        let (failure, heard) = match within(&*self.shared.clock, bound, sending).await {
            Some(Ok(replies)) if replies.len() == expected => {
                self.hand_out(batch, replies);
                return Heard::Answer;
            }
            Some(Ok(replies)) => broken(format!("{} replies to {expected} commands", replies.len())),
            Some(Err(error)) => broken(error.to_string()),
            None => (Failure::Silent(bound), Heard::Silence),
        };
        for job in batch {
            job.answer(Err(failure.clone()));
        }
        heard
    }

    fn hand_out(&self, batch: Vec<Job>, mut replies: Vec<Value>) {
        let confirmed = replies.pop().unwrap_or(Value::Nil);
        for (job, done) in batch.into_iter().zip(replies) {
            let done = life::accepted(done).and_then(|done| match unconfirmed(&confirmed, self.wait) {
                None => Ok(done),
                Some(why) => Err(Failure::Unconfirmed(why)),
            });
            job.answer(done);
        }
    }

    /// Asks an idle connection whether it still works.
    async fn ping(&self, wire: &mut MultiplexedConnection) -> Heard {
        let bound = self.shared.options.request_timeout;
        match within(&*self.shared.clock, bound, life::send(wire, redis::cmd("TIME"))).await {
            Some(Err(Failure::Broken(why))) => Heard::Broken(why),
            Some(Err(Failure::Refused(Verdict::Leave, why))) => {
                self.life.end(&why);
                Heard::Answer
            }
            Some(_) => Heard::Answer,
            None => Heard::Silence,
        }
    }
}

fn broken(why: String) -> (Failure, Heard) {
    (Failure::Broken(why.clone()), Heard::Broken(why))
}

/// Why what was done before a `WAIT` is not known to be on enough replicas, by its reply. Also a `WAIT` that was refused
/// has no say about what came before it: that was done.
fn unconfirmed(reply: &Value, wait: Wait) -> Option<String> {
    match reply {
        Value::Int(replicas) if *replicas >= i64::from(wait.replicas) => None,
        Value::Int(replicas) => Some(format!("{replicas} of {} replicas confirmed in time", wait.replicas)),
        Value::ServerError(error) => {
            let words = format!("{} {}", error.code(), error.details().unwrap_or_default());
            let rule = missing_rule(&words).map(|rule| format!("; give its user the rule {rule}"));
            let rule = rule.unwrap_or_default();
            Some(format!("the store refuses to wait for replicas ({words}){rule}"))
        }
        other => Some(format!("WAIT was answered with {other:?}")),
    }
}

/// How long a call may wait for its turn: until then the server has as much time to get to it as it had to wait.
pub(super) fn turn(request_timeout: Duration) -> Duration {
    request_timeout / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enough_replicas_confirm() {
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
