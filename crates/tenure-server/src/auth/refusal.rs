//! Why somebody is not let in, and how that is told.

use tenure::wire::Code;
use tenure_core::id::ProviderId;

use super::grant::Grant;
use super::scope::Scopes;
use crate::jwt::Refused;
use crate::reply::Failure;

/// What helps whoever is known and may not (RFC 6750, 3.1).
const INSUFFICIENT: &str = "Bearer realm=\"tenure\", error=\"insufficient_scope\"";

/// Why somebody is not let in. Cheap to make: it says nothing until somebody wants to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: Code,
    /// Whose token it was, when it is known.
    who: Option<String>,
    detail: String,
    challenge: String,
}

impl Refusal {
    pub(super) fn missing() -> Self {
        Self::unauthenticated(
            "this daemon asks who is calling: send `Authorization: Bearer <token>` (the `tenure` command: --token-file FILE or \
             TENURE_TOKEN_FILE)",
            "Bearer realm=\"tenure\"",
        )
    }

    pub(super) fn unknown() -> Self {
        Self::unauthenticated(
            "the token is not known here; was it taken out of the daemon's file, or is it another daemon's?",
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
                "the token is that of the provider {provider}, who may go online, go offline and be heard of, and nothing else"
            ),
            challenge: String::new(),
        }
    }

    /// The token of a provider is not believed. Told in the words of these tokens.
    pub(super) fn token(refused: &Refused) -> Self {
        Self {
            code: Code::parse(refused.code()).unwrap_or(Code::TokenMalformed),
            who: None,
            detail: refused.to_string(),
            challenge: refused.challenge().into_owned(),
        }
    }

    /// What a provider does in its own name, asked for by somebody else.
    pub(super) fn for_providers(grant: Option<&Grant>) -> Self {
        let detail = "this daemon has keys for the tokens of providers, so only a provider's own token does here";
        match grant {
            Some(grant) => Self::forbidden(grant, format!("the token {} does not do: {detail}", grant.name), ""),
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
        let detail = format!("the token {name} may not do this: it takes the scope {needed}, and the token has {has}");
        let scopes: Vec<_> = any_of.iter().map(|scope| scope.to_string()).collect();
        Self::forbidden(grant, detail, &format!(", scope=\"{}\"", scopes.join(" ")))
    }

    pub(super) fn everywhere(grant: &Grant) -> Self {
        let name = &grant.name;
        let detail = format!("the token {name} is for some groups and rosters, and this is about all of them");
        Self::forbidden(grant, detail, "")
    }

    pub(super) fn place(grant: &Grant, roster: bool, name: &str) -> Self {
        let kind = if roster { "roster" } else { "group" };
        let shown: String = name.chars().take(200).collect();
        let detail = format!("the token {} is not for the {kind} {shown:?}", grant.name);
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

    /// Whose token it was.
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
