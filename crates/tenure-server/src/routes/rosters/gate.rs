//! Who may ask for what. Once the daemon has keys, a provider's own routes need the provider's token, and what is for
//! operators refuses providers' tokens.

use axum::http::HeaderMap;
use tenure::roster::{Admission, Roster};
use tenure::wire::roster::Provider;
use tenure::wire::{Code, Problem};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger;
use tenure_core::time::StoreTime;

use crate::app::App;
use crate::jwt::Refused;
use crate::reply::Failure;

/// When the token that a provider showed was issued; `None` when it need not show one.
///
/// # Errors
/// 401 for no token and for one that is not believed, 403 for another provider's.
pub(super) fn provider(app: &App, headers: &HeaderMap, provider: &ProviderId) -> Result<Option<StoreTime>, Failure> {
    let Some(verifier) = &app.jwt else {
        return Ok(None);
    };
    let caller = verifier
        .caller(headers, app.time())
        .map_err(|refused| challenged(&refused))?;
    if caller.provider != *provider {
        let message = format!("the token is that of {}, who cannot act as {provider}", caller.provider);
        return Err(Failure::new(Code::WrongProvider, message));
    }
    Ok(Some(caller.issued_at))
}

/// Lets everybody in but a provider: a proxy that passes on the tokens of providers must not make operators of them.
///
/// # Errors
/// 403 when the request carries a token that is a provider's.
pub(super) fn operator(app: &App, headers: &HeaderMap) -> Result<(), Failure> {
    let caller = app.jwt.as_ref().map(|verifier| verifier.caller(headers, app.time()));
    match caller {
        Some(Ok(caller)) => {
            let message = format!(
                "this is for operators, and the token is that of the provider {}",
                caller.provider
            );
            Err(Failure::new(Code::NotForProviders, message))
        }
        Some(Err(_)) | None => Ok(()),
    }
}

/// Whether a provider may act on a token that was issued then. Nothing is asked when it showed none.
///
/// # Errors
/// 401, 403 or 404.
pub(super) async fn admit(
    app: &App,
    roster: &Roster,
    provider: &ProviderId,
    issued_at: Option<StoreTime>,
) -> Result<(), Failure> {
    if issued_at.is_none() {
        return Ok(());
    }
    match app.look_in(roster.admit(provider, issued_at)).await? {
        Admission::Welcome => Ok(()),
        Admission::Deactivated => Err(deactivated(roster.name(), provider, None)),
        Admission::Revoked => Err(revoked(provider)),
        Admission::Unknown => Err(unknown(roster.name(), provider)),
    }
}

/// The refusal of a provider that an operator has deactivated, with its row where that is at hand.
pub(super) fn deactivated(roster: &RosterName, provider: &ProviderId, row: Option<ledger::Provider>) -> Failure {
    let message =
        format!("an operator has deactivated {provider} in the roster {roster}; ask one to activate it again");
    let mut problem = Problem::new(Code::ProviderDeactivated, message);
    problem.provider = row.map(|row| Box::new(Provider::new(row, false)));
    problem.into()
}

/// The refusal of a token from before a deactivation.
pub(super) fn revoked(provider: &ProviderId) -> Failure {
    let message = format!("the token was issued before {provider} was deactivated; get a new one");
    Failure::new(Code::TokenRevoked, message)
        .with_challenge("Bearer error=\"invalid_token\", error_description=\"token_revoked\"")
}

/// The refusal of a provider that nobody has written down.
pub(super) fn unknown(roster: &RosterName, provider: &ProviderId) -> Failure {
    let message = format!("the roster {roster} has no provider {provider}");
    Failure::new(Code::NotFound, message)
}

fn challenged(refused: &Refused) -> Failure {
    let code = Code::parse(refused.code()).unwrap_or(Code::TokenMalformed);
    Failure::new(code, refused.to_string()).with_challenge(&refused.challenge())
}
