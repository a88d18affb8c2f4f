//! What a token says, once it is known who signed it. Pure.

use serde_json::{Map, Value};
use tenure_core::id::ProviderId;
use tenure_core::time::StoreTime;

use super::settings::{JwtSettings, RequiredClaim};
use super::{Caller, Refused};

/// Looks at the claims.
pub(super) fn check(settings: &JwtSettings, claims: &Value, now: StoreTime) -> Result<Caller, Refused> {
    let claims = claims.as_object().ok_or(Refused::Malformed)?;
    let leeway = settings.leeway;
    let expires_at = instant(claims.get("exp")).ok_or(Refused::NoExpiry)?;
    if expires_at + leeway <= now {
        return Err(Refused::Expired);
    }
    let issued_at = instant(claims.get("iat")).ok_or(Refused::NoIssueTime)?;
    let not_before = match claims.get("nbf") {
        Some(value) => instant(Some(value)).ok_or(Refused::Malformed)?,
        None => StoreTime::ZERO,
    };
    // One that is from the future would outlive its revocation.
    if not_before.max(issued_at) > now + leeway {
        return Err(Refused::NotYetValid);
    }
    if let Some(issuer) = &settings.issuer
        && !has(claims.get("iss"), issuer)
    {
        return Err(Refused::Issuer);
    }
    match (&settings.audience, claims.get("aud")) {
        (Some(audience), given) if has(given, audience) => {}
        // Who does not know its own name is not meant by any (RFC 7519, 4.1.3).
        (None, None) => {}
        _ => return Err(Refused::Audience),
    }
    if let Some(required) = settings.required.iter().find(|required| !meets(claims, required)) {
        return Err(Refused::Claim(required.name.as_str().into()));
    }
    let provider = claims.get("sub").and_then(Value::as_str).map(ProviderId::new);
    let Some(Ok(provider)) = provider else {
        return Err(Refused::Subject);
    };
    Ok(Caller {
        provider,
        issued_at: issued_at.minus(leeway),
        expires_at,
    })
}

/// A `NumericDate` (RFC 7519, 2): seconds since the epoch, maybe with a fraction. Too far away is the end of time.
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
        reason = "it is not negative, and what is too large becomes the largest"
    )]
    Some(StoreTime::from_micros((seconds * 1e6) as u64))
}

/// Whether a claim is this text, or a list with it.
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
    // A claim may have a name that looks like a path.
    let named = claims.get(name.as_str());
    has(named.or_else(|| follow(claims, name)), value)
}

/// The value at the end of a path into the claims.
fn follow<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
    let first = first.replace("~1", "/").replace("~0", "~");
    claims.get(&first)?.pointer(&format!("/{rest}"))
}
