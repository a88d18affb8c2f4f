//! Why a token is not believed.

use std::borrow::Cow;
use std::fmt;

/// A reason not to believe a token. It tells nothing of what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// There is none.
    Missing,
    /// It is longer than any token that is looked at.
    TooLong,
    /// It is no token.
    Malformed,
    /// It is signed by another algorithm than the configured one, or by none.
    Algorithm,
    /// It needs an extension that is not understood here.
    Extension,
    /// It names a key that is not among ours.
    UnknownKey,
    /// None of our keys has signed it as it is.
    Signature,
    /// It has no `exp`, or one that is no time.
    NoExpiry,
    /// It has expired.
    Expired,
    /// It has no `iat`, or one that is no time: it could not be revoked.
    NoIssueTime,
    /// It is not valid yet: its `nbf` or its `iat` is in the future.
    NotYetValid,
    /// It has no `sub`, or one that is no name of a provider.
    Subject,
    /// It is from another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
    /// It lacks this claim, or has another value in it.
    Claim(Box<str>),
}

impl Refused {
    /// The status of the answer: the same for all, since another token is what helps.
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

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Missing => "a provider's token is needed: send `Authorization: Bearer <token>`",
            Self::TooLong => "the token is longer than 8 KiB",
            Self::Malformed => "the token cannot be read",
            Self::Algorithm => "the token is not signed by the algorithm that is configured",
            Self::Extension => "the token needs an extension (`crit`) that is not understood",
            Self::UnknownKey => "the token is signed by a key that is not known here",
            Self::Signature => "the signature of the token is wrong",
            Self::NoExpiry => "the token does not say when it expires (`exp`)",
            Self::Expired => "the token has expired; get a new one",
            Self::NoIssueTime => "the token does not say when it was issued (`iat`)",
            Self::NotYetValid => "the token is not valid yet; look at the issuer's clock",
            Self::Subject => "the `sub` of the token is missing, or is no name of a provider",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::Claim(name) => return write!(f, "the token lacks a claim that is needed: {name}"),
        };
        f.write_str(text)
    }
}

impl std::error::Error for Refused {}
