//! Checks the claims of a token whose signature is verified. Pure.

use serde_json::{Map, Value};
use tenure_core::id::ProviderId;
use tenure_core::time::StoreTime;

use super::settings::{JwtSettings, RequiredClaim};
use super::{ProviderIdentity, TokenError};

/// Checks the claims.
pub(super) fn check(settings: &JwtSettings, claims: &Value, now: StoreTime) -> Result<ProviderIdentity, TokenError> {
    let claims = claims.as_object().ok_or(TokenError::Malformed)?;
    let leeway = settings.leeway;
    let expires_at = instant(claims.get("exp")).ok_or(TokenError::NoExpiry)?;
    if expires_at + leeway <= now {
        return Err(TokenError::Expired);
    }
    let issued_at = instant(claims.get("iat")).ok_or(TokenError::NoIssueTime)?;
    let not_before = match claims.get("nbf") {
        Some(value) => instant(Some(value)).ok_or(TokenError::Malformed)?,
        None => StoreTime::ZERO,
    };
    // A token issued in the future would survive its revocation.
    if not_before.max(issued_at) > now + leeway {
        return Err(TokenError::NotYetValid);
    }
    if let Some(issuer) = &settings.issuer
        && !has(claims.get("iss"), issuer)
    {
        return Err(TokenError::Issuer);
    }
    match (&settings.audience, claims.get("aud")) {
        (Some(audience), given) if has(given, audience) => {}
        // Without a configured audience, a token for any audience is for another one (RFC 7519, 4.1.3).
        (None, None) => {}
        _ => return Err(TokenError::Audience),
    }
    if let Some(required) = settings.required.iter().find(|required| !meets(claims, required)) {
        return Err(TokenError::Claim(required.name.as_str().into()));
    }
    let provider = claims.get("sub").and_then(Value::as_str).map(ProviderId::new);
    let Some(Ok(provider)) = provider else {
        return Err(TokenError::Subject);
    };
    Ok(ProviderIdentity {
        provider,
        rosters: texts(claims.get("roster")),
        issued_at: issued_at.minus(leeway),
        expires_at,
    })
}

/// A text, or a list of texts.
fn texts(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// A `NumericDate` (RFC 7519, 2): seconds since the epoch, possibly with a fraction. Saturates.
fn instant(value: Option<&Value>) -> Option<StoreTime> {
    let number = value?.as_number()?;
    if let Some(seconds) = number.as_u64() {
        return Some(StoreTime::from_micros(seconds.saturating_mul(1_000_000)));
    }
    let seconds = number
        .as_f64()
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and the cast saturates"
    )]
    Some(StoreTime::from_micros((seconds * 1e6) as u64))
}

/// Whether a claim is this text, or a list that contains it.
fn has(claim: Option<&Value>, wanted: &str) -> bool {
    match claim {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(wanted)),
        Some(Value::Bool(flag)) => wanted == if *flag { "true" } else { "false" },
        Some(Value::Number(number)) => number.to_string() == wanted,
        Some(Value::Null | Value::Object(_)) | None => false,
    }
}

fn meets(claims: &Map<String, Value>, required: &RequiredClaim) -> bool {
    let RequiredClaim { name, value } = required;
    if name == "scope"
        && let Some(Value::String(words)) = claims.get("scope")
    {
        return words.split(' ').any(|word| word == value);
    }
    // The name of a claim may look like a path.
    let named = claims.get(name.as_str());
    has(named.or_else(|| follow(claims, name)), value)
}

/// The value at the end of a path into the claims.
fn follow<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
    let first = first.replace("~1", "/").replace("~0", "~");
    claims.get(&first)?.pointer(&format!("/{rest}"))
}
