//! Which tokens are trusted, and the validation of these settings.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::time::show_duration;

/// The longest leeway, which is also how long a token outlives its expiry.
const MAX_LEEWAY: Duration = Duration::from_secs(60);

/// Which tokens are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// Where the keys are: `jwt.secret_file` or `jwt.jwks_file`, or the variable `TENURE_JWT_SECRET`.
    pub keys: KeySource,
    /// The only accepted algorithm, `jwt.algorithm`. The token's own header does not decide.
    pub algorithm: JwtAlgorithm,
    /// How far the issuer's clock may be off, `jwt.leeway`: 0 to 60 s. Tokens live longer by this much, and revocation also
    /// covers tokens issued up to this long after it.
    pub leeway: Duration,
    /// The `iss` that tokens must have, `jwt.issuer`.
    pub issuer: Option<String>,
    /// The `aud` that tokens must have, `jwt.audience`. Without it, tokens must have no `aud`.
    pub audience: Option<String>,
    /// Claims that tokens must all have, `jwt.require`.
    pub required: Vec<RequiredClaim>,
    /// How often the key file is reloaded, `jwt.refresh`.
    pub refresh: Duration,
}

impl JwtSettings {
    /// Tokens signed with a shared secret (HS256), with 5 s of leeway.
    #[must_use]
    pub fn with_secret(keys: KeySource) -> Self {
        Self::new(keys, JwtAlgorithm::Hs256)
    }

    /// Tokens signed with the private part of a key in a JWKS file (RFC 7517), with 5 s of leeway.
    #[must_use]
    pub fn with_jwks(file: impl Into<PathBuf>, algorithm: JwtAlgorithm) -> Self {
        Self::new(KeySource::JwksFile(file.into()), algorithm)
    }

    fn new(keys: KeySource, algorithm: JwtAlgorithm) -> Self {
        Self {
            keys,
            algorithm,
            leeway: Duration::from_secs(5),
            issuer: None,
            audience: None,
            required: Vec::new(),
            refresh: Duration::from_secs(5),
        }
    }

    /// Validates the settings. No I/O.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting and what is expected.
    pub fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        let is_shared = !matches!(self.keys, KeySource::JwksFile(_));
        if is_shared != (self.algorithm == JwtAlgorithm::Hs256) {
            return bad(format!(
                "the jwt.algorithm {} does not fit {}: HS256 takes a secret, all others a JWKS file",
                self.algorithm,
                if is_shared { "a secret" } else { "jwt.jwks_file" },
            ));
        }
        if self.leeway > MAX_LEEWAY {
            return bad(format!(
                "the jwt.leeway {} is outside 0s to {}",
                show_duration(self.leeway),
                show_duration(MAX_LEEWAY)
            ));
        }
        if self.refresh < Duration::from_secs(1) {
            return bad(format!("the jwt.refresh {} is below 1s", show_duration(self.refresh)));
        }
        for (name, value) in [("jwt.issuer", &self.issuer), ("jwt.audience", &self.audience)] {
            if value.as_ref().is_some_and(String::is_empty) {
                return bad(format!("the {name} is empty; leave it out to accept any"));
            }
        }
        Ok(())
    }
}

/// Where the keys are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with the secret, optionally followed by a line break.
    SecretFile(PathBuf),
    /// The secret itself, from the environment. Never from the command line, which every user of the machine can read.
    Secret(JwtSecret),
    /// A file with a JSON Web Key Set. Keys that do not fit the algorithm are skipped.
    JwksFile(PathBuf),
}

/// A secret. Its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct JwtSecret(Vec<u8>);

impl JwtSecret {
    /// From its bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for JwtSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256, over a shared secret.
    Hs256,
    /// RSA (PKCS #1 v1.5) with SHA-256.
    Rs256,
    /// RSA (PSS) with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// Every algorithm.
    pub const ALL: [Self; 6] = [
        Self::Hs256,
        Self::Rs256,
        Self::Ps256,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Its name in tokens.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(super) fn of_the_library(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Ps256 => Algorithm::PS256,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

impl fmt::Display for JwtAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JwtAlgorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join(", ");
                Error::new(
                    ErrorKind::Misconfigured,
                    format!("the jwt.algorithm {name:?} is not one of {known}"),
                )
            })
    }
}

/// A claim that tokens must have, written `name=value`.
///
/// A text claim must equal the value, a list must contain it, and `scope` must contain it as a word. A name that begins with
/// `/` is a JSON pointer into the claims (RFC 6901): `/realm_access/roles=provider`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredClaim {
    pub(super) name: String,
    pub(super) value: String,
}

impl RequiredClaim {
    /// A claim by its name or path, and its value.
    ///
    /// # Errors
    /// `Misconfigured` for an empty name.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                "a claim of jwt.require has no name: write name=value, like role=provider",
            ));
        }
        Ok(Self { name, value })
    }
}

impl FromStr for RequiredClaim {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!("{text:?} in jwt.require is not a claim: write name=value, like role=provider"),
            ));
        };
        Self::new(name, value)
    }
}
