//! Providers prove who they are with a signed token (JWT, RFC 7519), and its check needs nobody else.
//!
//! What is trusted is configured, and nothing that a token says about itself: one algorithm, keys from one source, and
//! which claims must be there ([`JwtSettings`]). The signature is looked at before any claim. A key belongs to one family
//! of algorithms, so no public key is ever taken for a secret, and `none` is no algorithm at all (RFC 8725).
//!
//! Checking does no I/O. A loop looks at the file of the keys now and then ([`KeyWatch`]); one that cannot be used leaves
//! the keys as they are, and says so.
//!
//! Deactivating a provider voids the tokens that were issued before: ask [`Caller::is_revoked`] with what the ledger or
//! the mirror has in `revoked_before`. No token and no secret is ever part of an error or of a log line.

mod claims;
mod keys;
mod refused;
mod settings;
#[cfg(test)]
mod tests;
mod verify;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use jsonwebtoken::decode_header;
use tenure::loops::{LoopBody, Turn};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::time::StoreTime;

use self::keys::Keys;
pub use self::refused::Refused;
pub use self::settings::{JwtAlgorithm, JwtSettings, KeySource, RequiredClaim, Secret};

/// The longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 8 * 1024;

/// Who speaks, by a token that was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The `sub` of the token.
    pub provider: ProviderId,
    /// The earliest time at which it can have been issued: its `iat` less the leeway.
    pub issued_at: StoreTime,
    /// When it expires, without the leeway.
    pub expires_at: StoreTime,
}

impl Caller {
    /// Whether the token may be older than the time before which tokens of its provider are void. Whoever compares the two
    /// elsewhere refuses what has `issued_at < revoked_before`.
    #[must_use]
    pub fn is_revoked(&self, revoked_before: Option<StoreTime>) -> bool {
        revoked_before.is_some_and(|before| self.issued_at < before)
    }
}

/// How the keys stand, for status and people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatus {
    /// How many keys a token may be signed by.
    pub keys: usize,
    /// Why what is in the file now is not used, if it is not.
    pub trouble: Option<String>,
}

/// Checks tokens.
#[derive(Debug)]
pub struct Verifier {
    settings: JwtSettings,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    keys: Arc<Keys>,
    trouble: Option<String>,
}

impl Verifier {
    /// A verifier with its keys. Reads their file, if there is one: the only I/O that a caller waits for.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting or the file and what is wrong with it.
    pub fn new(settings: JwtSettings) -> Result<Arc<Self>> {
        settings.check()?;
        let keys = Arc::new(keys::load(&settings)?);
        let held = Mutex::new(Held { keys, trouble: None });
        Ok(Arc::new(Self { settings, held }))
    }

    /// How far the issuer's clock may be off.
    #[must_use]
    pub fn leeway(&self) -> Duration {
        self.settings.leeway
    }

    /// Checks a token at a time: the store's, where it is known, else the wall clock's. No I/O: a hash for HS256, an
    /// operation with a public key for the others, times the keys that could have signed it.
    ///
    /// # Errors
    /// The first reason not to believe it. What is signed by nobody we trust is told nothing about its claims.
    pub fn verify(&self, token: &str, now: StoreTime) -> Result<Caller, Refused> {
        if token.len() > MAX_TOKEN {
            return Err(Refused::TooLong);
        }
        let header = decode_header(token).map_err(|_| Refused::Malformed)?;
        if header.alg != self.settings.algorithm.of_the_library() {
            return Err(Refused::Algorithm);
        }
        // An extension that must be understood, and is not (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(Refused::Extension);
        }
        let keys = Arc::clone(&self.held().keys);
        let claims = keys.open(token, &header)?;
        claims::check(&self.settings, &claims, now)
    }

    /// Checks the token of a request: [`bearer`], then [`Verifier::verify`].
    ///
    /// # Errors
    /// Those of both.
    pub fn caller(&self, headers: &HeaderMap, now: StoreTime) -> Result<Caller, Refused> {
        self.verify(bearer(headers)?, now)
    }

    /// Looks at the file of the keys, and takes what is new in it; whether there was anything. Without a file there never
    /// is.
    ///
    /// # Errors
    /// `Misconfigured` when it cannot be used: the keys stay as they were.
    pub async fn refresh(self: &Arc<Self>) -> Result<bool> {
        if matches!(self.settings.keys, KeySource::Secret(_)) {
            return Ok(false);
        }
        let me = Arc::clone(self);
        // A file may lie on a disk that is away.
        let read = tokio::task::spawn_blocking(move || keys::load(&me.settings)).await;
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading the keys panicked")));
        let mut held = self.held();
        match read {
            Ok(keys) if keys.are_from_the_same(&held.keys) => {
                held.trouble = None;
                Ok(false)
            }
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "the keys for the tokens of providers have changed");
                held.keys = Arc::new(keys);
                held.trouble = None;
                Ok(true)
            }
            Err(error) => {
                let trouble = error.chain();
                if held.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(
                        error = trouble,
                        "the keys for the tokens of providers stay as they were"
                    );
                }
                held.trouble = Some(trouble);
                Err(error)
            }
        }
    }

    /// How the keys stand. No I/O.
    #[must_use]
    pub fn status(&self) -> KeyStatus {
        let held = self.held();
        KeyStatus {
            keys: held.keys.len(),
            trouble: held.trouble.clone(),
        }
    }

    /// What it was told.
    #[must_use]
    pub fn settings(&self) -> &JwtSettings {
        &self.settings
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop that looks at the file of the keys: run it with [`JwtSettings::refresh`] as its longest interval.
#[derive(Debug, Clone)]
pub struct KeyWatch(pub Arc<Verifier>);

#[async_trait::async_trait]
impl LoopBody for KeyWatch {
    async fn turn(&mut self) -> Result<Turn> {
        // A file that cannot be used has been reported, and is no reason to look at it more often.
        let skipped = u64::from(self.0.refresh().await.is_err());
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}

/// The token that a request carries (RFC 6750, 2.1).
///
/// # Errors
/// `Missing` when it carries none, `Malformed` when it carries several, or something else.
pub fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let one = given.next().ok_or(Refused::Missing)?;
    if given.next().is_some() {
        return Err(Refused::Malformed);
    }
    let text = one.to_str().map_err(|_| Refused::Malformed)?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim_matches(' ')),
        _ => Err(Refused::Missing),
    }
}
