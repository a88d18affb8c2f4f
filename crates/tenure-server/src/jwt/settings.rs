//! What tokens are believed, and the refusal of what cannot work.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::time::show_duration;

/// The longest leeway: it is also how long a token outlives its expiry.
const MAX_LEEWAY: Duration = Duration::from_secs(60);

/// What tokens are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// Where the keys are: `jwt.secret_file` or `jwt.jwks_file`, or the variable `TENURE_JWT_SECRET`.
    pub keys: KeySource,
    /// The one algorithm that tokens are signed by, `jwt.algorithm`. What a token says about itself does not count.
    pub algorithm: JwtAlgorithm,
    /// How far the issuer's clock may be off, `jwt.leeway`: 0 to 60 s. More rides out worse clocks; it lets tokens live
    /// longer, and revoking reaches that much further ahead.
    pub leeway: Duration,
    /// The `iss` that tokens must have, `jwt.issuer`.
    pub issuer: Option<String>,
    /// The `aud` that tokens must be for, `jwt.audience`. Without it only tokens for nobody in particular are believed.
    pub audience: Option<String>,
    /// Claims that tokens must have, all of them, `jwt.require`.
    pub required: Vec<RequiredClaim>,
    /// How often the file of the keys is looked at, `jwt.refresh`.
    pub refresh: Duration,
}

impl JwtSettings {
    /// Tokens signed with a shared secret (HS256), with 5 s of leeway.
    #[must_use]
    pub fn with_secret(keys: KeySource) -> Self {
        Self::new(keys, JwtAlgorithm::Hs256)
    }

    /// Tokens signed by whoever has the private part of a key in a JWKS file (RFC 7517), with 5 s of leeway.
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

    /// Refuses what cannot work. No I/O.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting and what to write instead.
    pub fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        let is_shared = !matches!(self.keys, KeySource::JwksFile(_));
        if is_shared != (self.algorithm == JwtAlgorithm::Hs256) {
            return bad(format!(
                "the jwt.algorithm {} does not go with {}: HS256 takes a secret, all others a JWKS file",
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
                return bad(format!("the {name} is empty; leave it out when any will do"));
            }
        }
        Ok(())
    }
}

/// Where the keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with the secret, and a line break at most after it.
    SecretFile(PathBuf),
    /// The secret itself, from the environment. Not from the command line, where everybody on the machine reads it.
    Secret(Secret),
    /// A file with a JSON Web Key Set. Keys that do not fit the algorithm are passed over.
    JwksFile(PathBuf),
}

/// A secret, which shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// From its bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// How tokens are signed.
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
    /// All of them.
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
                    format!("the jwt.algorithm {name:?} is none of {known}"),
                )
            })
    }
}

/// A claim that tokens must have, written `name=value`.
///
/// A text must be equal, a list must contain it; in `scope` it is one of the words. A name that begins with `/` is a path
/// into the claims (RFC 6901): `/realm_access/roles=provider`.
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
                format!("{text:?} in jwt.require is no claim: write name=value, like role=provider"),
            ));
        };
        Self::new(name, value)
    }
}
