//! The supervisor's decisions: when a program may run, when it has to stop, and when others may find it.
//!
//! [`Supervisor`] is a pure machine: evidence about leadership, news of the child and of the catalog, signals and
//! instants go in as [`Event`]s, and [`Action`]s come out. It does no I/O and asks no clock; [`Supervisor::wake`] says
//! when it wants to be asked again. What it keeps, whatever happens in whichever order:
//!
//! * A child is started only on positive evidence, and only when nothing of the last one is left.
//! * It is told to end in the very step that brings evidence against it, and nothing of it is left when a deadline of
//!   the evidence passes. What is *unclear* never starts a child; whether it stops one is a setting.
//! * The service is wanted in the catalog only while its child runs, is ready, and is not being stopped.
//! * Every way out wants it out of the catalog first, and the way out has an end: the stop budget.

mod machine;
#[cfg(test)]
mod properties;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::clock::Mono;
use crate::id::Term;
use crate::lease::Token;

pub use machine::Supervisor;
pub use settings::{OnUncertain, Restart, Settings};

/// What is known about whether this node is the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Positive evidence that it is.
    Primary(Primacy),
    /// Positive evidence that it is not: somebody else is, or this node gave it up.
    Replica,
    /// Anything unclear, with the reason for people. Never starts a child.
    Uncertain(String),
}

impl Evidence {
    /// Primary until the source says something else: a source without deadlines and tokens.
    #[must_use]
    pub const fn primary() -> Self {
        Self::Primary(Primacy {
            until: None,
            term: None,
            token: None,
        })
    }

    /// The fencing token that comes with it.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Primary(primacy) => primacy.token,
            Self::Replica | Self::Uncertain(_) => None,
        }
    }
}

/// What comes with being the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Primacy {
    /// From here on somebody else may be the primary, unless the source has said a later instant by then. Nothing of the
    /// child is left then. `None`: the source has no deadlines.
    pub until: Option<Mono>,
    /// The term of the tenure under which this node leads, for the child.
    pub term: Option<Term>,
    /// The fencing token of the lease, for the child. Another token is another reign: a child that was started under the
    /// old one is stopped.
    pub token: Option<Token>,
}

/// One start of the child, counted from 1. News of another run than the present one is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(pub u64);

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A source of leadership has spoken.
    Evidence(Evidence),
    /// The child is ready to serve.
    Ready(Run),
    /// The child itself has ended with this exit code (128 + n for a signal), or could not be started. What it started
    /// may still run.
    Ended(Run, u8),
    /// The child and everything that it started are gone.
    Gone(Run),
    /// The catalog has confirmed that the service is not in it, after the latest [`Action::Deregister`].
    Absent,
    /// When the latest [`Action::Deregister`] was given, the service was in no catalog: no client was sent to it, and there
    /// is nothing to drain.
    Unlisted,
    /// Somebody asked the supervisor to end. From 128 on the code stands for a signal, and the child's own exit code takes
    /// its place where there is one; below, it stands whatever the child says. The second time means: fast.
    Stop(u8),
    /// Nothing, but time has passed.
    Tick,
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start the child, and tell when it is ready.
    Start(Run),
    /// The service shall be in the catalog.
    Register,
    /// The service shall not be in the catalog, whatever was wanted before.
    Deregister,
    /// Ask the child and everything that it started to end.
    Term(Run),
    /// Kill the child and everything that it started, and tell when all of it is gone. May come again.
    Kill(Run),
    /// End with this exit code. Nothing comes after it.
    Exit(u8),
}

/// Where the supervisor stands, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No child: not the primary, or not known to be.
    Waiting,
    /// No child, though primary: the last one failed, and its successor waits a while.
    BackingOff,
    /// The child is not ready yet.
    Starting,
    /// The child is ready.
    Running,
    /// The child is on its way out of the catalog; it is not yet told to end.
    Draining,
    /// The child is told to end.
    Stopping,
    /// There is no child any more, and the catalog is about to confirm that the service is gone.
    Leaving,
    /// Over.
    Over,
}

impl Stage {
    /// The word for it on the wire and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::BackingOff => "backing_off",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Leaving => "leaving",
            Self::Over => "over",
        }
    }
}
