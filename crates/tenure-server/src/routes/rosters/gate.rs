//! Whom a provider's own routes let act. Once the daemon has keys, that is the provider with its token, as long as nobody
//! has deactivated it.

use tenure::roster::{Admission, Roster};
use tenure::wire::roster::Provider;
use tenure::wire::{Code, Problem};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger;
use tenure_core::time::StoreTime;

use crate::app::App;
use crate::auth::Caller;
use crate::reply::Failure;

/// When the token that a provider showed was issued; `None` when it need not show one. Whether it is good was looked at
/// before the request was let in.
///
/// # Errors
/// 403 for another provider's.
pub(super) fn provider(app: &App, caller: &Caller, provider: &ProviderId) -> Result<Option<StoreTime>, Failure> {
    match caller {
        Caller::Provider(caller) if caller.provider == *provider => Ok(Some(caller.issued_at)),
        Caller::Provider(caller) => {
            let message = format!("the token is that of {}, who cannot act as {provider}", caller.provider);
            Err(Failure::new(Code::WrongProvider, message))
        }
        // With keys nobody else is let in here; whoever changes that is to notice.
        _ if app.jwt.is_some() => Err(Failure::new(Code::TokenMissing, "a provider's token is needed")),
        Caller::Anyone | Caller::Stranger | Caller::Known(_) => Ok(None),
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
