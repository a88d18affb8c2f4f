//! The keys that verify tokens: a secret, or public keys from a JWKS file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use jsonwebtoken::errors::ErrorKind as Why;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey, DecodingKeyKind, Header, Validation, decode};
use serde::Deserialize;
use serde_json::Value;
use tenure_core::error::{Error, ErrorKind, Result};

use super::settings::{JwtAlgorithm, JwtSettings, KeySource};
use super::{TokenError, verify};

/// The largest key file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The most keys of a set: each may be tried per token.
const MAX_KEYS: usize = 64;
/// A shorter secret can be guessed from one token (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;
/// The sizes of RSA keys: smaller ones are insecure, larger ones are not supported by `ring`.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;

/// Keys of one algorithm.
pub(super) struct Keys {
    algorithm: JwtAlgorithm,
    keys: Vec<(Option<String>, DecodingKey)>,
    /// The bytes they were read from.
    source: Vec<u8>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("algorithm", &self.algorithm)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn are_from_the_same(&self, other: &Self) -> bool {
        self.source == other.source
    }

    /// The claims of a token, if one of the keys verifies it.
    pub(super) fn open(&self, token: &str, header: &Header) -> Result<Value, TokenError> {
        let mut validation = Validation::new(self.algorithm.of_the_library());
        // The library would check claims against the machine's clock; `claims::check` uses a given time.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        // A token or a key without a `kid` matches any.
        let may_fit = |id: &Option<String>| match (id, &header.kid) {
            (Some(id), Some(wanted)) => id == wanted,
            _ => true,
        };
        let mut refused = TokenError::UnknownKey;
        for (_, key) in self.keys.iter().filter(|(id, _)| may_fit(id)) {
            match decode::<Value>(token, key, &validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => {
                    refused = match error.kind() {
                        Why::InvalidSignature => TokenError::Signature,
                        Why::InvalidAlgorithm => TokenError::Algorithm,
                        _ => TokenError::Malformed,
                    };
                }
            }
        }
        Err(refused)
    }
}

/// Reads the keys from their source.
pub(super) fn load(settings: &JwtSettings) -> Result<Keys> {
    // Before the first signature is verified. Fails only when it is installed already.
    let _ = verify::PROVIDER.install_default();
    let (source, keys) = match &settings.keys {
        KeySource::Secret(secret) => (Vec::new(), of_secret(secret.bytes(), "TENURE_JWT_SECRET")?),
        KeySource::SecretFile(path) => {
            let bytes = read(path, "jwt.secret_file")?;
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let secret = line.strip_suffix(b"\r").unwrap_or(line);
            let keys = of_secret(secret, &format!("jwt.secret_file {}", path.display()))?;
            (bytes, keys)
        }
        KeySource::JwksFile(path) => {
            let bytes = read(path, "jwt.jwks_file")?;
            let keys = of_set(&bytes, settings.algorithm)
                .map_err(|why| refuse(format!("the jwt.jwks_file {} {why}", path.display())))?;
            (bytes, keys)
        }
    };
    Ok(Keys {
        algorithm: settings.algorithm,
        keys,
        source,
    })
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

fn read(path: &Path, setting: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let place = path.display();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| refuse(format!("the {setting} {place} cannot be read")).because(error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(refuse(format!("the {setting} {place} is larger than 1 MiB")));
    }
    Ok(bytes)
}

fn of_secret(secret: &[u8], place: &str) -> Result<Vec<(Option<String>, DecodingKey)>> {
    if secret.len() < MIN_SECRET {
        return Err(refuse(format!(
            "the secret in {place} has {} bytes; at least {MIN_SECRET} are required: make one with `openssl rand -base64 48`",
            secret.len()
        )));
    }
    Ok(vec![(None, DecodingKey::from_secret(secret))])
}

/// A key set. Each key is parsed on its own.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The keys of a set that fit the algorithm, or what is wrong. Errors quote nothing of the file: it may be the wrong file.
fn of_set(bytes: &[u8], algorithm: JwtAlgorithm) -> Result<Vec<(Option<String>, DecodingKey)>, String> {
    let set: KeySet = serde_json::from_slice(bytes).map_err(|error| {
        format!(
            "is not a JSON Web Key Set ({{\"keys\": […]}}): see line {}, column {}",
            error.line(),
            error.column()
        )
    })?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("has more than {MAX_KEYS} keys"));
    }
    let mut keys = Vec::new();
    let mut passed_over = Vec::new();
    for (n, value) in set.keys.into_iter().enumerate() {
        match of_key(value, algorithm) {
            Ok(key) => keys.push(key),
            Err(why) => passed_over.push(format!("key {} {why}", n + 1)),
        }
    }
    if keys.is_empty() {
        passed_over.truncate(5);
        let why = if passed_over.is_empty() {
            "it is empty".to_owned()
        } else {
            passed_over.join("; ")
        };
        return Err(format!("has no key for {algorithm}: {why}"));
    }
    Ok(keys)
}

fn of_key(value: Value, algorithm: JwtAlgorithm) -> Result<(Option<String>, DecodingKey), &'static str> {
    let key: Jwk = serde_json::from_value(value).map_err(|_| "has an unknown type")?;
    let common = &key.common;
    if common
        .key_algorithm
        .is_some_and(|named| named.to_string() != algorithm.as_str())
    {
        return Err("is for another algorithm");
    }
    if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return Err("is not for signatures");
    }
    let verifies = |uses: &Vec<KeyOperations>| uses.contains(&KeyOperations::Verify);
    if common.key_operations.as_ref().is_some_and(|uses| !verifies(uses)) {
        return Err("is not for verifying");
    }
    if !is_of_kind(&key.algorithm, algorithm) {
        return Err("is of another type or curve");
    }
    let decoding = DecodingKey::from_jwk(&key).map_err(|_| "has a part that is not base64url")?;
    if !is_sound(&decoding, algorithm) {
        return Err("is too weak, too large, or not a point of its curve");
    }
    Ok((common.key_id.clone(), decoding))
}

fn is_of_kind(key: &AlgorithmParameters, algorithm: JwtAlgorithm) -> bool {
    match (algorithm, key) {
        (JwtAlgorithm::Rs256 | JwtAlgorithm::Ps256, AlgorithmParameters::RSA(_)) => true,
        (JwtAlgorithm::Es256, AlgorithmParameters::EllipticCurve(key)) => key.curve == EllipticCurve::P256,
        (JwtAlgorithm::Es384, AlgorithmParameters::EllipticCurve(key)) => key.curve == EllipticCurve::P384,
        (JwtAlgorithm::EdDsa, AlgorithmParameters::OctetKeyPair(key)) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    }
}

fn is_sound(key: &DecodingKey, algorithm: JwtAlgorithm) -> bool {
    if let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind() {
        let leading = n.iter().take_while(|byte| **byte == 0).count();
        let unused = n.get(leading).map_or(0, |byte| byte.leading_zeros() as usize);
        return key.family() == AlgorithmFamily::Rsa && RSA_BITS.contains(&((n.len() - leading) * 8 - unused));
    }
    key.try_get_as_bytes()
        .is_ok_and(|bytes| verify::is_point(algorithm.of_the_library(), bytes))
}
