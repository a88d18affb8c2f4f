//! Fencing: a sink refuses who comes with an older token.
//!
//! A lease cannot protect what its holder writes to. Between the holder's last look at its verdict and the arrival of
//! its write anything can happen: the process is stopped, the machine suspended, the packet delayed, for longer than the
//! lease lasts. By then somebody else holds the lease. So every grant carries a [`Token`] higher than all before it, the
//! holder sends it along with each write, and the *sink* refuses a token that is lower than the highest it has admitted.
//!
//! There are three of these, with one meaning: **a token equal to the mark or above it is admitted, and becomes the mark;
//! a lower one is refused.**
//!
//! | the sink | what to use |
//! |---|---|
//! | is code in this process | [`Fence`] |
//! | is a Postgres database | [`POSTGRES`]: the function `tenure_fence(resource, token)`, called with the write; a trigger for tables that carry a `fence_token` column |
//! | is Valkey or Redis | [`VALKEY`]: a script that checks the token and runs one command |
//!
//! The guide `docs/guides/fencing.md` shows all three against a holder that is stopped and wakes up too late.
//!
//! Tokens are comparable within one group only. A sink that serves two groups names its resources after the group too.

mod marks;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use tenure_core::lease::Token;

use marks::Marks;

/// SQL for a sink in Postgres: the table of marks, the function `tenure_fence` and the trigger `tenure_fence_row`. Can be
/// applied again at any time; run it in the schema of the application (`fence/postgres.sql` of this crate).
pub const POSTGRES: &str = include_str!("../fence/postgres.sql");

/// A Lua script for a sink in Valkey or Redis (`fence/valkey.lua` of this crate): `KEYS` are the key of the mark and the
/// key of the data, `ARGV` are the token, a command, and the arguments that follow its key.
pub const VALKEY: &str = include_str!("../fence/valkey.lua");

/// How many resources a [`Fence::default`] remembers: some 2 MB with names of fifty characters.
pub const RESOURCES: usize = 10_000;

/// Writers of different resources seldom wait for each other with this many turns.
const TURNS: usize = 64;

/// A fence for a sink in this process: remembers for each resource the highest token that was admitted.
///
/// ```
/// use tenure::fence::{Fence, Token};
///
/// # fn main() -> tenure::Result<()> {
/// let fence = Fence::default();
/// let (old, new) = (Token::new(41)?, Token::new(42)?);
/// assert_eq!(fence.pass("device-7", old, || "written"), Ok("written"));
/// assert_eq!(fence.pass("device-7", new, || "written"), Ok("written"));
/// // The old holder wakes up.
/// let fenced = fence.pass("device-7", old, || "never runs").unwrap_err();
/// assert_eq!(fenced.seen, new);
/// # Ok(())
/// # }
/// ```
///
/// # What it forgets
///
/// It remembers a bounded number of resources. One more makes it forget the resource with the lowest mark, and that mark
/// becomes the *floor*: of a resource that is not remembered only tokens from the floor up are admitted. So forgetting
/// never admits an old token. What it can do is refuse a rightful holder of a resource that was never seen, or was
/// forgotten, when its lease is older than the floor; [`Fenced::is_remembered`] tells the two apart, and a newly acquired
/// lease has a token above every floor. Make the fence larger than the number of resources in use and it does not happen.
///
/// # What it does not do
///
/// It lives and dies with its process. A sink that outlives it has to keep the mark itself, in the same atomic step as
/// the data (a file that is written beside and renamed, with the token in it), and hand it in with [`Fence::remember`] or
/// [`Fence::raise_floor`] when it starts, before the first write.
pub struct Fence {
    marks: Mutex<Marks>,
    turns: [Mutex<()>; TURNS],
}

/// A write that came with an older token. Nothing changed. Its sender has lost the lease: it has to stop, and to acquire
/// the lease again before it writes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// What was to be written to.
    pub resource: String,
    /// The token that came.
    pub token: Token,
    /// What it would have had to reach: the highest token admitted for this resource, or the floor.
    pub seen: Token,
    /// Whether `seen` is of this very resource. Otherwise it is the floor (see [`Fence`]), and the sender may be the
    /// rightful holder all the same; a lease that it acquires anew gets past.
    pub is_remembered: bool,
}

impl Fence {
    /// A fence that remembers up to `resources` of them (at least one). It knows nothing yet: a sink that existed before
    /// this process has marks of its own, see [`Fence::remember`].
    ///
    /// Its memory is bounded by `resources` times the length of a name plus some 150 bytes.
    #[must_use]
    pub fn new(resources: usize) -> Self {
        Self {
            marks: Mutex::new(Marks::new(resources)),
            turns: [const { Mutex::new(()) }; TURNS],
        }
    }

    /// Admits a token and makes it the resource's mark, or refuses it. O(log resources), and never waits for a write.
    ///
    /// It decides, and orders nothing after the decision: between this call and the write that follows it another thread
    /// may admit a higher token and write first. Where the write is a plain function, [`Fence::pass`] makes the two one
    /// step. Where it awaits, hold an async lock of the sink over both.
    ///
    /// # Errors
    /// [`Fenced`] when the token is lower than what was admitted before. The mark stays.
    pub fn admit(&self, resource: &str, token: Token) -> Result<(), Fenced> {
        self.marks().admit(resource, token)
    }

    /// Admits a token and runs `write` as one step: no other `pass` of this resource runs meanwhile. The mark is there
    /// before the write begins, so a write that fails leaves the fence as strict as one that succeeds.
    ///
    /// `write` must not use this fence (it could wait for itself), and others wait for it: keep it short.
    ///
    /// # Errors
    /// [`Fenced`] when the token is lower than what was admitted before; `write` did not run then.
    pub fn pass<T>(&self, resource: &str, token: Token, write: impl FnOnce() -> T) -> Result<T, Fenced> {
        // A write that panicked did so in its own matters; there is nothing in here that it could have broken.
        let _turn = self.turn(resource).lock().unwrap_or_else(PoisonError::into_inner);
        self.admit(resource, token)?;
        Ok(write())
    }

    /// Takes over a mark that the sink has kept. One that is lower than what is known changes nothing. O(log resources).
    pub fn remember(&self, resource: &str, mark: Token) {
        // Refused means known already.
        let _ = self.marks().admit(resource, mark);
    }

    /// Refuses tokens below `floor` for every resource that is not remembered: for a sink that has kept nothing but the
    /// highest token of all. A floor never falls.
    pub fn raise_floor(&self, floor: Token) {
        self.marks().raise_floor(floor);
    }

    /// The highest token admitted for a resource, if it is remembered.
    #[must_use]
    pub fn seen(&self, resource: &str) -> Option<Token> {
        self.marks().seen(resource)
    }

    /// The lowest token admitted for resources that are not remembered. `None` as long as nothing was forgotten: seeing
    /// it rise means that the fence is too small for the number of resources in use.
    #[must_use]
    pub fn floor(&self) -> Option<Token> {
        self.marks().floor()
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, resource: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        resource.hash(&mut hasher);
        let turn = hasher.finish() % TURNS as u64;
        &self.turns[usize::try_from(turn).expect("it is below the number of turns")]
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
