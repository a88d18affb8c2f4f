//! Who is calling, and what they may do.
//!
//! A caller shows a bearer token (RFC 6750). The daemon has a file with the tokens it knows: for each a name, the SHA-256 of
//! the secret, what it may do ([`Scope`]) and where. What a route asks for stands where the route is declared, in the
//! `security` of its description, and nowhere else: what is enforced is what the OpenAPI document says.
//!
//! Checking does no I/O and costs one hash of 68 bytes: beats are most of the traffic. A plain SHA-256 is enough because the
//! secret is 256 random bits, drawn by us: there is nothing to guess, so nothing to slow guessing down for. What is not
//! shaped like such a secret is not even hashed.
//!
//! The tokens of providers ([`crate::jwt`]) live beside these. They reach the routes of their own provider and nothing else,
//! and where there are keys for them nothing else reaches these, nor lives in the group that a roster is.

mod admit;
mod caller;
mod file;
mod grant;
mod guard;
mod refusal;
mod rule;
mod scope;
mod secret;
mod watch;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::admit::Shut;
pub(crate) use self::caller::{Caller, Peer};
pub use self::file::{Entry, read};
pub(crate) use self::guard::Guard;
pub(crate) use self::rule::{PROVIDER, Rule, Rules, TOKEN};
pub use self::scope::{Scope, Scopes};
pub use self::secret::Secret;
pub(crate) use self::secret::hex;
pub(crate) use self::watch::TokenWatch;

/// Where the tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSettings {
    /// Their file; see [`read`] for what is in it.
    pub file: PathBuf,
    /// How often it is looked at.
    pub refresh: Duration,
}

impl TokenSettings {
    /// The tokens of a file that is looked at every 2 s.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            refresh: Duration::from_secs(2),
        }
    }
}
