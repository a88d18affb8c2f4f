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
    /// A library's member trusted its grant of a lease, under this token, at this instant.
    TrustLease(String, u64),
    /// The tenure was to end.
    Leave,
    /// A lease, waited for at most this long.
    Acquire(String, Micros),
    /// A lease, under this token.
    Release(String, u64),
    /// Whatever the library releases in the background after an unknown outcome.
    ReleaseAny(String),
    /// An operator released the grant of a lease under this token in place of its holder, which the call names.
    Revoke(String, u64),
    /// A member noticed that it no longer has its grant of a lease under this token.
    Notice(String, u64),
    /// A key, taken from its owner, or with `true` only if no living member has it.
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
    /// The place of a shared lease, else 0.
    pub place: u64,
}

/// A lease that was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Its token.
    pub token: u64,
    /// Its place.
    pub place: u64,
    /// Whether the tenure held it already.
    pub is_kept: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// A lease was granted, or kept.
    Granted(Grant),
    /// A read: all holders.
    Reads(Vec<Holder>),
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
        matches!(self.outcome, Outcome::Done | Outcome::Granted(_))
    }

    /// Whether the store let the tenure that it names do something.
    #[must_use]
    pub fn is_own_act(&self) -> bool {
        let is_own = !matches!(
            self.verb,
            Verb::Leave | Verb::Trust | Verb::TrustLease(..) | Verb::Revoke(..) | Verb::Notice(..)
        );
        is_own && self.is_done()
    }

    /// The tenures that it saw alive, in a read or by acting under its own.
    pub fn seen_alive(&self) -> impl Iterator<Item = &str> {
        let own = self.is_own_act().then_some(self.tenure.as_str());
        let read = self.holders().iter().filter(|holder| holder.is_alive);
        own.into_iter().chain(read.map(|holder| holder.tenure.as_str()))
    }

    /// The tenures that it showed to have ended.
    pub fn seen_dead(&self) -> impl Iterator<Item = &str> {
        let has_ended = match (&self.verb, &self.outcome) {
            (_, Outcome::Ended(_)) => true,
            (verb, outcome) => *verb == Verb::Leave && *outcome == Outcome::Done,
        };
        let read = self.holders().iter().filter(|holder| !holder.is_alive);
        let own = has_ended.then_some(self.tenure.as_str());
        own.into_iter().chain(read.map(|holder| holder.tenure.as_str()))
    }

    /// What a read shows.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        match &self.outcome {
            Outcome::Reads(holders) => holders,
            _ => &[],
        }
    }

    /// The lease (`true`) or key that it is about.
    #[must_use]
    pub fn subject(&self) -> Option<(bool, &str)> {
        match &self.verb {
            Verb::Acquire(name, _)
            | Verb::Release(name, _)
            | Verb::ReleaseAny(name)
            | Verb::Revoke(name, _)
            | Verb::ReadLease(name) => Some((true, name)),
            Verb::Claim(name, _) | Verb::Unclaim(name) | Verb::ReadClaim(name) => Some((false, name)),
            _ => None,
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
    /// The group that everything happens in.
    pub group: Arc<str>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Recorder {
    /// An empty history of a group.
    #[must_use]
    pub fn new(clock: RunClock, group: &str) -> Self {
        Self {
            clock,
            group: Arc::from(group),
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
