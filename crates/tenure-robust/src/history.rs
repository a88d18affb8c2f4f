//! What clients did: each call with its begin and end on one clock, and what came of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds on the clock of a run.
pub type Micros = u64;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// A member began a tenure with this ttl; the call names the tenure when it is known.
    Join(Micros),
    /// A beat for this ttl.
    Beat(Micros),
    /// A library's member trusted its tenure at this instant.
    Trust,
    /// The tenure was to end.
    Leave,
    /// A lease.
    Acquire(String),
    /// A lease, under this token.
    Release(String, u64),
    /// Whatever the library releases in the background after an unknown outcome.
    ReleaseAny(String),
    /// A key, taken from whoever has it, or with `true` only if no living member has.
    Claim(String, bool),
    /// A key.
    Unclaim(String),
    /// Who holds a lease?
    ReadLease(String),
    /// Who owns a key?
    ReadClaim(String),
}

/// Who holds something, as an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The tenure.
    pub tenure: String,
    /// Whether it was said to be alive.
    pub is_alive: bool,
    /// The token of a lease; 0 for a claim.
    pub token: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// A lease was granted, or kept, under this token.
    Token(u64),
    /// A read.
    Reads(Option<Holder>),
    /// Refused, because this tenure has it; an empty name if the answer names none.
    Taken(String),
    /// Refused: the tenure has ended, for this reason.
    Ended(String),
    /// Certainly nothing happened, for a reason that says nothing about who has what.
    Refused(String),
    /// It may have happened, up to the end of the call, or not.
    Unknown,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who called.
    pub client: usize,
    /// When it was sent.
    pub begin: Micros,
    /// When its outcome was known, or the last instant at which it could take effect.
    pub end: Micros,
    /// The tenure that it named or began; empty for none.
    pub tenure: String,
    /// What was asked for.
    pub verb: Verb,
    /// What came of it.
    pub outcome: Outcome,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |micros: Micros| format!("{}.{:03}", micros / 1_000, micros % 1_000);
        let (begin, end) = (ms(self.begin), ms(self.end));
        write!(f, "{begin:>10} to {end:>10} ms  client {:<2} ", self.client)?;
        write!(f, "{:<22} {:?} -> {:?}", self.tenure, self.verb, self.outcome)
    }
}

impl Call {
    /// Whether it took effect.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done | Outcome::Token(_))
    }

    /// The lease or key that it is about.
    #[must_use]
    pub fn subject(&self) -> Option<(bool, &str)> {
        match &self.verb {
            Verb::Acquire(name) | Verb::Release(name, _) | Verb::ReleaseAny(name) | Verb::ReadLease(name) => {
                Some((true, name))
            }
            Verb::Claim(name, _) | Verb::Unclaim(name) | Verb::ReadClaim(name) => Some((false, name)),
            Verb::Join(_) | Verb::Beat(_) | Verb::Trust | Verb::Leave => None,
        }
    }
}

/// The member of a tenure id.
#[must_use]
pub fn member_of(tenure: &str) -> &str {
    tenure.rsplit_once('@').map_or(tenure, |(member, _)| member)
}

/// The clock of a run: monotonic, and the same for all clients; the store's wall clock runs beside it.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    start: Instant,
    wall: u64,
}

impl RunClock {
    /// A clock that begins now.
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: Instant::now(),
            wall: micros(wall),
        }
    }

    /// The time since the begin.
    #[must_use]
    pub fn now(&self) -> Micros {
        micros(self.start.elapsed())
    }

    /// A time of this clock as microseconds of the epoch.
    #[must_use]
    pub fn to_wall(&self, at: Micros) -> u64 {
        self.wall + at
    }

    /// A store's time on this clock.
    #[must_use]
    pub fn of_wall(&self, wall: u64) -> Micros {
        wall.saturating_sub(self.wall)
    }
}

/// A duration in microseconds.
#[must_use]
pub fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The calls of all clients.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// The clock of the run.
    pub clock: RunClock,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Recorder {
    /// An empty history that begins now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            clock: RunClock::start(),
            calls: Arc::default(),
        }
    }

    /// Adds a call.
    pub fn add(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// The calls so far, by begin.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        calls.sort_by_key(|call| (call.begin, call.end));
        calls
    }
}
