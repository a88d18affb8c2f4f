//! Refusals of admission, and their answers.

use tenure::wire::Code;
use tenure_core::id::ProviderId;

use super::grant::Grant;
use super::scope::Scopes;
use crate::jwt::TokenError;
use crate::reply::Failure;

/// The challenge for a valid token without permission (RFC 6750, 3.1).
const INSUFFICIENT: &str = "Bearer realm=\"tenure\", error=\"insufficient_scope\"";

/// Why a caller is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: Code,
    /// The name of the token, if it is known.
    who: Option<String>,
    detail: String,
    challenge: String,
}

impl Refusal {
    pub(super) fn missing() -> Self {
        Self::unauthenticated(
            "this daemon requires a token: send `Authorization: Bearer <token>` (the `tenure` command: --token-file FILE or \
             TENURE_TOKEN_FILE)",
            "Bearer realm=\"tenure\"",
        )
    }

    pub(super) fn unknown() -> Self {
        Self::unauthenticated(
            "unknown token; was it removed from the daemon's token file, or does it belong to another daemon?",
            "Bearer realm=\"tenure\", error=\"invalid_token\"",
        )
    }

    fn unauthenticated(detail: &str, challenge: &str) -> Self {
        Self {
            code: Code::Unauthenticated,
            who: None,
            detail: detail.to_owned(),
            challenge: challenge.to_owned(),
        }
    }

    pub(super) fn expired(grant: &Grant) -> Self {
        let mut refusal = Self::unknown();
        refusal.detail = format!("the token {} has expired; ask for a new one", grant.name);
        refusal.who = Some(grant.name.clone());
        refusal
    }

    pub(super) fn provider(provider: &ProviderId) -> Self {
        Self {
            code: Code::NotForProviders,
            who: Some(format!("provider {provider}")),
            detail: format!(
                "the token belongs to the provider {provider}, which may only go online, go offline and send heartbeats"
            ),
            challenge: String::new(),
        }
    }

    /// A provider's token is invalid.
    pub(super) fn token(error: &TokenError) -> Self {
        Self {
            code: Code::parse(error.code()).unwrap_or(Code::TokenMalformed),
            who: None,
            detail: error.to_string(),
            challenge: error.challenge().into_owned(),
        }
    }

    /// A route for providers, called with another token.
    pub(super) fn for_providers(grant: Option<&Grant>) -> Self {
        let detail = "this daemon verifies providers' tokens, so only the provider's own token is accepted here";
        match grant {
            Some(grant) => Self::forbidden(grant, format!("the token {} is not accepted: {detail}", grant.name), ""),
            None => Self {
                code: Code::Forbidden,
                who: None,
                detail: detail.to_owned(),
                challenge: INSUFFICIENT.to_owned(),
            },
        }
    }

    pub(super) fn scope(grant: &Grant, any_of: Scopes) -> Self {
        let needed: Vec<_> = any_of.iter().map(|scope| format!("`{scope}`")).collect();
        let needed = needed.join(" or ");
        let (name, has) = (&grant.name, grant.scopes);
        let detail =
            format!("the token {name} may not do this: the scope {needed} is required, and the token has {has}");
        let scopes: Vec<_> = any_of.iter().map(|scope| scope.to_string()).collect();
        Self::forbidden(grant, detail, &format!(", scope=\"{}\"", scopes.join(" ")))
    }

    pub(super) fn everywhere(grant: &Grant) -> Self {
        let name = &grant.name;
        let detail =
            format!("the token {name} is restricted to some groups and rosters, and this route covers all of them");
        Self::forbidden(grant, detail, "")
    }

    pub(super) fn place(grant: &Grant, roster: bool, name: &str) -> Self {
        let kind = if roster { "roster" } else { "group" };
        let shown: String = name.chars().take(200).collect();
        let detail = format!("the token {} is not valid for the {kind} {shown:?}", grant.name);
        Self::forbidden(grant, detail, "")
    }

    fn forbidden(grant: &Grant, detail: String, more: &str) -> Self {
        Self {
            code: Code::Forbidden,
            who: Some(grant.name.clone()),
            detail,
            challenge: format!("{INSUFFICIENT}{more}"),
        }
    }

    /// The name of the token.
    pub(crate) fn who(&self) -> Option<&str> {
        self.who.as_deref()
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    pub(crate) fn into_failure(self) -> Failure {
        let failure = Failure::new(self.code, self.detail);
        if self.challenge.is_empty() {
            return failure;
        }
        failure.with_challenge(&self.challenge)
    }
}
