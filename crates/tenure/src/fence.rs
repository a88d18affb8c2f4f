//! Fencing: a sink rejects writes with an outdated token.
//!
//! A lease alone cannot protect the data that its holder writes. Between the holder's check of its verdict and the
//! arrival of its write, the process may be stopped, the machine suspended or the packet delayed for longer than the
//! lease lasts, and another holder takes over. So every grant carries a [`Token`] higher than all before it. The holder
//! sends the token with each write, and the *sink* rejects a token lower than the highest it has admitted.
//!
//! There are three implementations with one rule: **a token equal to or above the mark is admitted and becomes the
//! mark; a lower one is rejected.**
//!
//! | the sink | what to use |
//! |---|---|
//! | is code in this process | [`Fence`] |
//! | is a Postgres database | [`POSTGRES`]: the function `tenure_fence(resource, token)`, called with the write; a trigger for tables that carry a `fence_token` column |
//! | is Valkey or Redis | [`VALKEY`]: a script that checks the token and runs one command |
//!
//! The guide `docs/guides/fencing.md` shows all three against a holder that is paused and resumes too late.
//!
//! Tokens are comparable within one group only. A sink that serves two groups includes the group in its resource names.

mod marks;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use tenure_core::lease::Token;

use marks::Marks;

/// SQL for a sink in Postgres: the table of marks, the function `tenure_fence` and the trigger `tenure_fence_row`. It
/// can be applied repeatedly; run it in the schema of the application (`fence/postgres.sql` of this crate).
pub const POSTGRES: &str = include_str!("../fence/postgres.sql");

/// A Lua script for a sink in Valkey or Redis (`fence/valkey.lua` of this crate): `KEYS` are the key of the mark and
/// the key of the data, `ARGV` are the token, a command, and the arguments that follow its key.
pub const VALKEY: &str = include_str!("../fence/valkey.lua");

/// The number of resources that a [`Fence::default`] remembers: about 2 MB with names of fifty characters.
pub const RESOURCES: usize = 10_000;

/// With this many locks, writers of different resources seldom wait for each other.
const WRITE_LOCKS: usize = 64;

/// A fence for a sink in this process. It remembers the highest admitted token of each resource.
///
/// ```
/// use tenure::fence::{Fence, Token};
///
/// # fn main() -> tenure::Result<()> {
/// let fence = Fence::default();
/// let (old, new) = (Token::new(41)?, Token::new(42)?);
/// assert_eq!(fence.pass("device-7", old, || "written"), Ok("written"));
/// assert_eq!(fence.pass("device-7", new, || "written"), Ok("written"));
/// // The old holder resumes.
/// let fenced = fence.pass("device-7", old, || "never runs").unwrap_err();
/// assert_eq!(fenced.seen, new);
/// # Ok(())
/// # }
/// ```
///
/// # What it forgets
///
/// It remembers a bounded number of resources. One more makes it forget the resource with the lowest mark, and that
/// mark becomes the *floor*: for a resource that is not remembered, only tokens from the floor up are admitted. So
/// forgetting never admits an old token. It can reject the rightful holder of an unknown resource whose lease is older
/// than the floor; [`Fenced::is_remembered`] is `false` then, and a newly acquired lease has a token above every floor.
/// To avoid this, make the fence larger than the number of resources in use.
///
/// # What it does not do
///
/// Its marks are lost with the process. A sink that outlives the process keeps the mark itself, in the same atomic step
/// as the data (for instance in a file that is written to a temporary name and renamed). It passes the mark to
/// [`Fence::remember`] or [`Fence::raise_floor`] at start, before the first write.
pub struct Fence {
    marks: Mutex<Marks>,
    write_locks: [Mutex<()>; WRITE_LOCKS],
}

/// The rejection of a write with an outdated token. Nothing changed. The sender has lost the lease: it must stop, and
/// acquire the lease again before the next write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// The resource of the write.
    pub resource: String,
    /// The token of the write.
    pub token: Token,
    /// The lowest token that would be admitted: the highest admitted for this resource so far, or the floor.
    pub seen: Token,
    /// Whether `seen` belongs to this resource. Otherwise it is the floor (see [`Fence`]), and the sender may still be
    /// the rightful holder; a newly acquired lease is admitted.
    pub is_remembered: bool,
}

impl Fence {
    /// A fence that remembers up to `resources` resources (at least one). It starts empty: a sink that existed before
    /// this process has marks of its own, see [`Fence::remember`].
    ///
    /// Its memory is bounded by `resources` times the length of a name plus about 150 bytes.
    #[must_use]
    pub fn new(resources: usize) -> Self {
        Self {
            marks: Mutex::new(Marks::new(resources)),
            write_locks: [const { Mutex::new(()) }; WRITE_LOCKS],
        }
    }

    /// Admits a token and makes it the resource's mark, or rejects it. O(log resources); never waits for a write.
    ///
    /// It does not order anything after the check: between this call and the write that follows it, another thread may
    /// admit a higher token and write first. If the write is a plain function, [`Fence::pass`] makes check and write
    /// one step. If the write awaits, hold an async lock of the sink over both.
    ///
    /// # Errors
    /// [`Fenced`] when the token is lower than one admitted before. The mark stays.
    pub fn admit(&self, resource: &str, token: Token) -> Result<(), Fenced> {
        self.marks().admit(resource, token)
    }

    /// Admits a token and runs `write` as one step: no other `pass` of this resource runs at the same time. The mark is
    /// set before the write begins, so after a failed write the fence is as strict as after a successful one.
    ///
    /// `write` must not use this fence (it could deadlock), and other writers wait for it: keep it short.
    ///
    /// # Errors
    /// [`Fenced`] when the token is lower than one admitted before; `write` did not run.
    pub fn pass<T>(&self, resource: &str, token: Token, write: impl FnOnce() -> T) -> Result<T, Fenced> {
        // A write that panicked cannot have broken any state of the fence.
        let _locked = self.write_lock(resource).lock().unwrap_or_else(PoisonError::into_inner);
        self.admit(resource, token)?;
        Ok(write())
    }

    /// Restores a mark that the sink has kept. A mark lower than the known one changes nothing. O(log resources).
    pub fn remember(&self, resource: &str, mark: Token) {
        // Rejected means that a higher mark is known.
        let _ = self.marks().admit(resource, mark);
    }

    /// Rejects tokens below `floor` for every resource that is not remembered. Use it for a sink that keeps only the
    /// highest of all tokens. The floor never falls.
    pub fn raise_floor(&self, floor: Token) {
        self.marks().raise_floor(floor);
    }

    /// The highest token admitted for a resource, if it is remembered.
    #[must_use]
    pub fn seen(&self, resource: &str) -> Option<Token> {
        self.marks().seen(resource)
    }

    /// The lowest token admitted for resources that are not remembered; `None` while nothing was forgotten. If it
    /// rises, the fence is too small for the number of resources in use.
    #[must_use]
    pub fn floor(&self) -> Option<Token> {
        self.marks().floor()
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lock(&self, resource: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        resource.hash(&mut hasher);
        let index = hasher.finish() % WRITE_LOCKS as u64;
        &self.write_locks[usize::try_from(index).expect("it is below the number of locks")]
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new(RESOURCES)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.marks().fmt(f)
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource, token, seen, ..
        } = self;
        if self.is_remembered {
            write!(
                f,
                "fenced: {resource} has seen the token {seen}, and {token} is older; another holder took over"
            )
        } else {
            write!(
                f,
                "fenced: nothing is known of {resource}, and the token {token} is below the floor {seen}; acquire the \
                 lease again"
            )
        }
    }
}

impl std::error::Error for Fenced {}

#[cfg(test)]
mod tests;
