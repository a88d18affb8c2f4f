//! The supervisor's decisions: when its program may run, when it must stop, and when the catalog may list it.
//!
//! [`Supervisor`] is a pure state machine. [`Event`]s go in (evidence about leadership, changes of the child and the
//! catalog, signals, ticks), and [`Action`]s come out. It does no I/O and reads no clock; [`Supervisor::wake`] says
//! when it needs a tick. It guarantees, for events in any order:
//!
//! * A child starts only on positive evidence, and only after the last one and its descendants are gone.
//! * The child is terminated in the step that receives evidence against it, and is gone before a deadline of the
//!   evidence. *Uncertain* evidence never starts a child; a setting decides whether it stops one.
//! * The service is registered only while its child runs, is ready, and is not being stopped.
//! * Every shutdown first deregisters the service, and is bounded by the stop budget.

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

/// The evidence of whether this node is the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The node is the primary.
    Primary(Primacy),
    /// The node is not the primary: another one is, or this one stepped down.
    Replica,
    /// Unclear, with the reason. Never starts a child.
    Uncertain(String),
}

impl Evidence {
    /// Primary until further evidence: for a source without deadlines and tokens.
    #[must_use]
    pub const fn primary() -> Self {
        Self::Primary(Primacy {
            until: None,
            term: None,
            token: None,
        })
    }

    /// The fencing token, if there is one.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Primary(primacy) => primacy.token,
            Self::Replica | Self::Uncertain(_) => None,
        }
    }
}

/// The terms of being the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Primacy {
    /// From this instant on, another node may be the primary, unless the source extends it. The child is gone by then.
    /// `None`: the source has no deadlines.
    pub until: Option<Mono>,
    /// The term of the leading tenure, for the child.
    pub term: Option<Term>,
    /// The fencing token of the lease, for the child. Another token means that leadership was lost in between: a child
    /// with the old one is stopped.
    pub token: Option<Token>,
}

/// A start of the child, counted from 1. Events of an earlier run are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(pub u64);

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An input of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// New evidence about leadership.
    Evidence(Evidence),
    /// The child is ready to serve.
    Ready(Run),
    /// The child itself has ended with this exit code (128 + n for a signal), or could not be started. Its descendants
    /// may still run.
    Ended(Run, u8),
    /// The child and its descendants are gone.
    Gone(Run),
    /// The catalog has confirmed that the service is not listed, after the latest [`Action::Deregister`].
    Absent,
    /// The service was not listed at the latest [`Action::Deregister`], so no client uses it and there is nothing to
    /// drain.
    Unlisted,
    /// A request to shut down. A code from 128 on stands for a signal and is replaced by the child's own exit code, if
    /// any; a lower one is final. The second request skips all waits.
    Stop(u8),
    /// Time has passed.
    Tick,
}

/// An output of the supervisor. Actions are carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start the child, and report when it is ready.
    Start(Run),
    /// Register the service in the catalog.
    Register,
    /// Deregister the service, whatever was requested before.
    Deregister,
    /// Send TERM to the child and its descendants.
    Term(Run),
    /// Send KILL to the child and its descendants, and report when all are gone. May be repeated.
    Kill(Run),
    /// Exit with this code. The last action.
    Exit(u8),
}

/// The state of the supervisor, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No child: the node is not known to be the primary.
    Waiting,
    /// No child on the primary: the last one failed, and the restart pause is not over.
    BackingOff,
    /// The child is not ready yet.
    Starting,
    /// The child is ready.
    Running,
    /// The child is being drained after deregistration; TERM was not sent.
    Draining,
    /// TERM was sent to the child.
    Stopping,
    /// The child is gone, and the catalog has not confirmed the deregistration.
    Leaving,
    /// The supervisor has ended.
    Over,
}

impl Stage {
    /// The name on the wire and in logs.
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
