//! Authorization on a provider's own routes. With keys configured, only the provider itself is admitted, with a token that
//! was issued after its last deactivation.

use std::time::Duration;

use tenure::roster::{Admission, Roster};
use tenure::wire::roster::Provider;
use tenure::wire::{Code, Problem};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger;
use tenure_core::time::{StoreTime, show_duration};

use crate::app::App;
use crate::auth::Caller;
use crate::reply::Failure;

/// The resolution of `iat`.
const SECOND: Duration = Duration::from_secs(1);

/// The issue time of the provider's token, which admission has verified; `None` when none is required.
///
/// # Errors
/// 403 for the token of another provider or for another roster: the same name may be another person there.
pub(super) fn provider(
    app: &App,
    caller: &Caller,
    roster: &RosterName,
    provider: &ProviderId,
) -> Result<Option<StoreTime>, Failure> {
    match caller {
        Caller::Provider(caller) if !caller.rosters.iter().any(|name| name == roster.as_str()) => {
            let message = format!("the token is not for the roster {roster}: its claim `roster` must name it");
            Err(Failure::new(Code::WrongProvider, message))
        }
        Caller::Provider(caller) if caller.provider == *provider => Ok(Some(caller.issued_at)),
        Caller::Provider(caller) => {
            let message = format!(
                "the token belongs to {}, which cannot act as {provider}",
                caller.provider
            );
            Err(Failure::new(Code::WrongProvider, message))
        }
        // Admission refuses every other caller once keys are configured.
        _ if app.jwt.is_some() => Err(Failure::new(Code::TokenMissing, "a provider's token is needed")),
        Caller::Anyone | Caller::Stranger | Caller::Known(_) => Ok(None),
    }
}

/// Checks that the token was not revoked and the provider not deactivated. Does nothing without a token.
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
        Admission::Admitted => Ok(()),
        Admission::Deactivated => Err(deactivated(roster.name(), provider, None)),
        Admission::Revoked => Err(revoked(app, roster, provider, issued_at).await),
        Admission::Unknown => Err(unknown(roster.name(), provider)),
    }
}

/// The refusal of a deactivated provider, with its row if that was read.
pub(super) fn deactivated(roster: &RosterName, provider: &ProviderId, row: Option<ledger::Provider>) -> Failure {
    let message = format!("{provider} in the roster {roster} is deactivated; an operator can activate it");
    let mut problem = Problem::new(Code::ProviderDeactivated, message);
    problem.provider = row.map(|row| Box::new(Provider::new(row, false)));
    problem.into()
}

/// The refusal of a token that may have been issued before a deactivation. The issue time is uncertain by the leeway of the
/// issuer's clock and the whole seconds of `iat`. For a token in that range the refusal says so, and when a new token will be
/// accepted.
pub(super) async fn revoked(
    app: &App,
    roster: &Roster,
    provider: &ProviderId,
    issued_at: Option<StoreTime>,
) -> Failure {
    let row = app.look_in(roster.provider(provider)).await.ok();
    let revoked_before = row.and_then(|row| row.value?.row.revoked_before);
    let leeway = app.jwt.as_ref().map_or(Duration::ZERO, |jwt| jwt.leeway());
    let (latest, taken_from) = (
        issued_at.map(|earliest| earliest + leeway * 2 + SECOND),
        revoked_before.map(|before| whole_second(before + leeway)),
    );
    let message = match (latest, revoked_before) {
        (Some(latest), Some(before)) if latest < before => {
            format!("the token was issued before {provider} was deactivated; get a new one")
        }
        _ => format!(
            "the token may have been issued before {provider} was deactivated: its iat has whole seconds, and its issuer's \
             clock may be off by {}; get a new one",
            show_duration(leeway)
        ),
    };
    let wait = taken_from.map_or(Duration::ZERO, |from| from.since(app.time()));
    let mut problem = Problem::new(Code::TokenRevoked, message);
    if !wait.is_zero() {
        problem = problem.with_retry_after(wait);
    }
    Failure::from(problem).with_challenge("Bearer error=\"invalid_token\", error_description=\"token_revoked\"")
}

/// Rounds up to a whole second.
fn whole_second(at: StoreTime) -> StoreTime {
    StoreTime::from_micros(at.micros().div_ceil(1_000_000).saturating_mul(1_000_000))
}

/// The refusal of a provider that does not exist.
pub(super) fn unknown(roster: &RosterName, provider: &ProviderId) -> Failure {
    let message = format!("the roster {roster} has no provider {provider}");
    Failure::new(Code::NotFound, message)
}
