//! Authentication and authorization.
//!
//! A caller sends a bearer token (RFC 6750). The daemon's token file lists, per token, a name, the SHA-256 of the secret, its
//! scopes ([`Scope`]) and the groups and rosters it is valid for. The scopes a route requires are declared once, in the
//! `security` of its OpenAPI description, and enforced from there.
//!
//! A check does no I/O and costs one SHA-256 of 68 bytes, because beats are most of the traffic. A fast hash is safe: the
//! secret is 256 random bits, so there is nothing to brute-force. Text that is not shaped like such a secret is not hashed.
//!
//! Providers have tokens of their own ([`crate::jwt`]). Such a token is valid only on the routes of its provider. Once keys
//! for them are configured, no other token is accepted there, or for joining, beating and leaving in a roster's group.

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

pub(crate) use self::admit::AdmitError;
pub(crate) use self::caller::{Caller, Peer};
pub use self::file::{TokenEntry, read};
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
