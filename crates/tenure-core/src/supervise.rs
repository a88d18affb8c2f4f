//! The supervisor's decisions: when a program may run, when it has to stop, and when others may find it.
//!
//! Pure: evidence, the child's news and instants go in, actions come out.

use crate::clock::Mono;
use crate::id::Term;
use crate::lease::Token;

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
}

/// What comes with being the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Primacy {
    /// From here on somebody else may be the primary, unless the source has said a later instant by then. Nothing of the
    /// child is left then. `None`: the source has no deadlines.
    pub until: Option<Mono>,
    /// The term of the tenure under which this node leads, for the child.
    pub term: Option<Term>,
    /// The fencing token of the lease, for the child.
    pub token: Option<Token>,
}
