//! Authentication of providers by signed tokens (JWT, RFC 7519), verified locally.
//!
//! Trust comes from the configuration, never from the token: one algorithm, keys from one source, and the required claims
//! ([`JwtSettings`]). The signature is verified before any claim is read. A key is bound to one family of algorithms, so a
//! public key cannot be used as a secret, and `none` is not an algorithm (RFC 8725).
//!
//! Verification does no I/O. A loop reloads the key file ([`KeyWatch`]); an invalid file leaves the keys unchanged and is
//! reported.
//!
//! Deactivating a provider revokes the tokens issued before: pass `revoked_before` of the ledger or the mirror to
//! [`ProviderIdentity::is_revoked`]. Errors and log lines never contain tokens or secrets.

mod claims;
mod error;
mod keys;
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

pub use self::error::TokenError;
use self::keys::Keys;
pub use self::settings::{JwtAlgorithm, JwtSecret, JwtSettings, KeySource, RequiredClaim};

/// The longest accepted token, in bytes.
const MAX_TOKEN: usize = 8 * 1024;

/// The provider named by a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderIdentity {
    /// The `sub` of the token.
    pub provider: ProviderId,
    /// The rosters in its claim `roster`, a name or a list of names. The token is valid in no other.
    pub rosters: Vec<String>,
    /// The earliest time at which it can have been issued: its `iat` minus the leeway.
    pub issued_at: StoreTime,
    /// When it expires, without the leeway.
    pub expires_at: StoreTime,
}

impl ProviderIdentity {
    /// Whether the token may have been issued before the provider's tokens were revoked: `issued_at < revoked_before`.
    #[must_use]
    pub fn is_revoked(&self, revoked_before: Option<StoreTime>) -> bool {
        revoked_before.is_some_and(|before| self.issued_at < before)
    }
}

/// The state of the keys, for status and doctor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatus {
    /// The number of keys.
    pub keys: usize,
    /// Why the current file is not in use, if it is not.
    pub trouble: Option<String>,
}

/// Verifies providers' tokens.
#[derive(Debug)]
pub struct Verifier {
    settings: JwtSettings,
    held: Mutex<LoadedKeys>,
}

#[derive(Debug)]
struct LoadedKeys {
    keys: Arc<Keys>,
    trouble: Option<String>,
}

impl Verifier {
    /// A verifier with its keys. Reads the key file, if there is one, which blocks.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting or file and the mistake.
    pub fn new(settings: JwtSettings) -> Result<Arc<Self>> {
        settings.check()?;
        let keys = Arc::new(keys::load(&settings)?);
        let held = Mutex::new(LoadedKeys { keys, trouble: None });
        Ok(Arc::new(Self { settings, held }))
    }

    /// How far the issuer's clock may be off.
    #[must_use]
    pub fn leeway(&self) -> Duration {
        self.settings.leeway
    }

    /// Verifies a token at `now`: the store's time if it is known, else the wall clock. No I/O; costs one hash (HS256) or one
    /// public-key operation per key that may have signed it.
    ///
    /// # Errors
    /// The first check that failed. A token without a trusted signature gets no information about its claims.
    pub fn verify(&self, token: &str, now: StoreTime) -> Result<ProviderIdentity, TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        if header.alg != self.settings.algorithm.of_the_library() {
            return Err(TokenError::Algorithm);
        }
        // A critical extension, none of which is supported (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::Extension);
        }
        let keys = Arc::clone(&self.held().keys);
        let claims = keys.open(token, &header)?;
        claims::check(&self.settings, &claims, now)
    }

    /// Verifies the token of a request: [`bearer`], then [`Verifier::verify`].
    ///
    /// # Errors
    /// Those of both.
    pub fn caller(&self, headers: &HeaderMap, now: StoreTime) -> Result<ProviderIdentity, TokenError> {
        self.verify(bearer(headers)?, now)
    }

    /// Reloads the key file; returns whether the keys changed. Without a file they never do.
    ///
    /// # Errors
    /// `Misconfigured` when the file is invalid; the keys do not change.
    pub async fn refresh(self: &Arc<Self>) -> Result<bool> {
        if matches!(self.settings.keys, KeySource::Secret(_)) {
            return Ok(false);
        }
        let me = Arc::clone(self);
        // The file may be on a network disk.
        let read = tokio::task::spawn_blocking(move || keys::load(&me.settings)).await;
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading the keys panicked")));
        let mut held = self.held();
        match read {
            Ok(keys) if keys.are_from_the_same(&held.keys) => {
                held.trouble = None;
                Ok(false)
            }
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "keys of providers' tokens reloaded");
                held.keys = Arc::new(keys);
                held.trouble = None;
                Ok(true)
            }
            Err(error) => {
                let trouble = error.chain();
                if held.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(
                        error = trouble,
                        "keys of providers' tokens not reloaded: the old ones stay in use"
                    );
                }
                held.trouble = Some(trouble);
                Err(error)
            }
        }
    }

    /// The state of the keys. No I/O.
    #[must_use]
    pub fn status(&self) -> KeyStatus {
        let held = self.held();
        KeyStatus {
            keys: held.keys.len(),
            trouble: held.trouble.clone(),
        }
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &JwtSettings {
        &self.settings
    }

    fn held(&self) -> MutexGuard<'_, LoadedKeys> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop that reloads the key file: run it with [`JwtSettings::refresh`] as its longest interval.
#[derive(Debug, Clone)]
pub struct KeyWatch(pub Arc<Verifier>);

#[async_trait::async_trait]
impl LoopBody for KeyWatch {
    async fn turn(&mut self) -> Result<Turn> {
        // An invalid file was reported already, and is not read more often for it.
        let skipped = u64::from(self.0.refresh().await.is_err());
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}

/// The bearer token of a request (RFC 6750, 2.1).
///
/// # Errors
/// `Missing` without a bearer token, `Malformed` with several `Authorization` headers or an unreadable one.
pub fn bearer(headers: &HeaderMap) -> Result<&str, TokenError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let one = given.next().ok_or(TokenError::Missing)?;
    if given.next().is_some() {
        return Err(TokenError::Malformed);
    }
    let text = one.to_str().map_err(|_| TokenError::Malformed)?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim_matches(' ')),
        _ => Err(TokenError::Missing),
    }
}
