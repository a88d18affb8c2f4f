//! Extractors: path parameters, query, `Tenure-Not-After` and JSON bodies. Errors name the parameter or field.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use futures_util::TryStreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use tenure::wire::{Code, NOT_AFTER};
use tenure_core::error::Error;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

use crate::app::App;
use crate::reply::Failure;

/// Path parameters, in the order of the path.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for PathParams<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<App>) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(PathRejection::FailedToDeserializePathParams(error)) => Err(match error.into_kind() {
                ErrorKind::InvalidUtf8InPathParam { key } => Failure::new(
                    Code::Invalid,
                    format!("the {{{key}}} in the path is not UTF-8 when percent-decoded"),
                ),
                ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message) => {
                    Failure::new(Code::Invalid, message)
                }
                other => Failure::new(Code::Invalid, other.to_string()),
            }),
            Err(other) => Err(Failure::new(Code::Internal, other.to_string())),
        }
    }
}

/// The query. Unknown and repeated parameters are rejected.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &Arc<App>) -> Result<Self, Failure> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(error) => {
                let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                Err(Failure::new(Code::Invalid, format!("in the query: {cause}")))
            }
        }
    }
}

/// Rejects any query.
pub(crate) struct NoQuery;

impl FromRequestParts<Arc<App>> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &Arc<App>) -> Result<Self, Failure> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(Failure::new(Code::Invalid, "this path takes no query parameters")),
        }
    }
}

/// The header `Tenure-Not-After` of a mutating call.
pub(crate) struct NotAfter(pub(crate) Call);

impl FromRequestParts<Arc<App>> for NotAfter {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &Arc<App>) -> Result<Self, Failure> {
        let Some(value) = parts.headers.get(NOT_AFTER) else {
            return Ok(Self(Call::default()));
        };
        let at = value.to_str().unwrap_or("(not text)").parse::<StoreTime>();
        at.map(|at| Self(Call::not_after(at)))
            .map_err(|error| Failure::new(Code::Invalid, format!("in the header Tenure-Not-After: {error}")))
    }
}

/// A JSON body, which the middleware has read.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Failure> {
        check_type(request.headers().get(CONTENT_TYPE))?;
        parse(&whole(request).await?).map(Self)
    }
}

/// An optional JSON body.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for OptionalJson<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Failure> {
        if axum::body::HttpBody::is_end_stream(request.body()) {
            return Ok(Self(T::default()));
        }
        let kind = request.headers().get(CONTENT_TYPE).cloned();
        let bytes = whole(request).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_type(kind.as_ref())?;
        parse(&bytes).map(Self)
    }
}

fn check_type(kind: Option<&HeaderValue>) -> Result<(), Failure> {
    let shown = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let essence = shown
        .as_deref()
        .and_then(|kind| kind.split(';').next())
        .unwrap_or("")
        .trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let was = shown.map_or_else(|| "without a Content-Type".to_owned(), |kind| format!("as {kind:?}"));
    Err(Failure::new(
        Code::UnsupportedMediaType,
        format!("the body was sent {was}; send Content-Type: application/json"),
    ))
}

/// The body, which the middleware has read in one piece.
async fn whole(request: Request) -> Result<Bytes, Failure> {
    let piece = request.into_body().into_data_stream().try_next().await;
    let piece = piece.map_err(|_| Failure::new(Code::BadRequest, "the connection closed before the body ended"))?;
    Ok(piece.unwrap_or_default())
}

/// Parses JSON. Distinguishes malformed JSON (400) from JSON that breaks a rule (422), and names the field.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // serde would also accept an array with the fields in declaration order.
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match serde_json::from_slice(bytes) {
        Ok(value) if is_object => Ok(value),
        Ok(_) => Err(not_an_object()),
        Err(error) => Err(explain::<T>(bytes, is_object, &error)),
    }
}

fn not_an_object() -> Failure {
    Error::invalid("the body is JSON, but invalid type: expected an object").into()
}

/// Parses again, with the path of each field, to explain the error.
#[cold]
fn explain<T: DeserializeOwned>(bytes: &[u8], is_object: bool, error: &serde_json::Error) -> Failure {
    if let Err(broken) = serde_json::from_slice::<IgnoredAny>(bytes) {
        return Failure::new(Code::MalformedJson, format!("the body is not JSON: {broken}"));
    }
    if !is_object {
        return not_an_object();
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let detail = match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(found) if found.path().iter().next().is_some() => format!("{}: {}", found.path(), found.inner()),
        _ => error.to_string(),
    };
    Error::invalid(detail).into()
}
