//! Why a token is invalid.

use std::borrow::Cow;
use std::fmt;

/// Why a token is invalid. Reveals nothing of its content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenError {
    /// The request carries none.
    Missing,
    /// It is longer than 8 KiB.
    TooLong,
    /// It cannot be parsed.
    Malformed,
    /// It is not signed by the configured algorithm.
    Algorithm,
    /// It has a critical extension.
    Extension,
    /// It names an unknown key.
    UnknownKey,
    /// No key verifies its signature.
    Signature,
    /// It has no valid `exp`.
    NoExpiry,
    /// It has expired.
    Expired,
    /// It has no valid `iat`, so it could not be revoked.
    NoIssueTime,
    /// It is not valid yet: its `nbf` or its `iat` is in the future.
    NotYetValid,
    /// It has no `sub` that is a valid provider name.
    Subject,
    /// It is from another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
    /// It lacks this claim, or the claim has another value.
    Claim(Box<str>),
}

impl TokenError {
    /// The HTTP status of all of them: another token is the remedy.
    pub const STATUS: u16 = 401;

    /// A short, stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "token_missing",
            Self::TooLong => "token_too_long",
            Self::Malformed => "token_malformed",
            Self::Algorithm => "token_algorithm",
            Self::Extension => "token_extension",
            Self::UnknownKey => "token_key_unknown",
            Self::Signature => "token_signature",
            Self::NoExpiry => "token_without_expiry",
            Self::Expired => "token_expired",
            Self::NoIssueTime => "token_without_issue_time",
            Self::NotYetValid => "token_not_yet_valid",
            Self::Subject => "token_subject",
            Self::Issuer => "token_issuer",
            Self::Audience => "token_audience",
            Self::Claim(_) => "token_claim",
        }
    }

    /// The header `WWW-Authenticate` of the answer (RFC 6750, 3).
    #[must_use]
    pub fn challenge(&self) -> Cow<'static, str> {
        match self {
            Self::Missing => "Bearer".into(),
            _ => format!("Bearer error=\"invalid_token\", error_description=\"{}\"", self.code()).into(),
        }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Missing => "a provider's token is needed: send `Authorization: Bearer <token>`",
            Self::TooLong => "the token is longer than 8 KiB",
            Self::Malformed => "the token cannot be read",
            Self::Algorithm => "the token is not signed by the configured algorithm",
            Self::Extension => "the token needs an unsupported extension (`crit`)",
            Self::UnknownKey => "the token is signed by an unknown key",
            Self::Signature => "the signature of the token is wrong",
            Self::NoExpiry => "the token has no expiry (`exp`)",
            Self::Expired => "the token has expired; get a new one",
            Self::NoIssueTime => "the token has no issue time (`iat`)",
            Self::NotYetValid => "the token is not valid yet; check the issuer's clock",
            Self::Subject => "the `sub` of the token is missing or not a valid provider name",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::Claim(name) => return write!(f, "the token lacks a required claim: {name}"),
        };
        f.write_str(text)
    }
}

impl std::error::Error for TokenError {}
