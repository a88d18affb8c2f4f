//! The secret of a token, and its hash.

use std::fmt;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tenure_core::error::{Error, ErrorKind, Result};

/// The prefix of every secret, so that people and secret scanners recognize a leaked one.
const PREFIX: &str = "tnr_";
/// Random bytes per secret.
const BYTES: usize = 32;
/// The length of a secret as text.
const LENGTH: usize = PREFIX.len() + 2 * BYTES;

/// A secret: `tnr_` and 64 hexadecimal digits, 256 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Draws a secret from the random generator that TLS uses.
    ///
    /// # Errors
    /// `Internal` when the system returns no random bytes.
    pub fn draw() -> Result<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::new(ErrorKind::Internal, "the system returned no random bytes"))?;
        Ok(Self(format!("{PREFIX}{}", hex(&bytes))))
    }

    /// The secret, to be shown once.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Its SHA-256 as 64 hexadecimal digits, as in the token file.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex(&Hash::of(&self.0).0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Whether a text has the shape of a secret. Nothing else is looked up, so a password chosen by a person is never a token.
pub(super) fn is_ours(text: &str) -> bool {
    text.len() == LENGTH
        && text.starts_with(PREFIX)
        && text[PREFIX.len()..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(secret: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        Self(hash)
    }

    /// From 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).ok()?;
            // `from_str_radix` accepts a sign.
            if digits.starts_with('+') {
                return None;
            }
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// The sort key. The timing of a lookup reveals something about the hash of the token that was sent, which its sender
    /// knows already, and nothing that helps to find another text with the same hash prefix.
    pub(super) fn place(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
