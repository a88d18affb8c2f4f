//! Responses: JSON and problems.

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure::wire::{Code, PROBLEM_JSON, Problem};
use tenure_core::error::{Error, ErrorKind};

/// An error response of a handler.
#[derive(Debug)]
pub(crate) struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    problem: Problem,
    /// `WWW-Authenticate` of a 401 or 403 (RFC 9110, 11.6.1).
    challenge: Option<HeaderValue>,
}

/// The result of a handler.
pub(crate) type RouteResult = Result<Response, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// Sets `WWW-Authenticate`.
    pub(crate) fn with_challenge(mut self, challenge: &str) -> Self {
        self.0.challenge = HeaderValue::from_str(challenge).ok();
        self
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let challenge = None;
        Self(Box::new(Inner { problem, challenge }))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if Code::of(&error) == Code::Internal {
            tracing::error!(error = error.chain(), "internal error");
        }
        Problem::from(&error).into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Inner { problem, challenge } = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = with_type(status, body.into(), HeaderValue::from_static(PROBLEM_JSON));
        if let Some(challenge) = challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(after) = problem.retry_after_ms {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
        }
        response
    }
}

/// Requires one result of the store per item: otherwise they cannot be matched.
pub(crate) fn all_answered(answers: usize, asked: usize, what: &str) -> Result<(), Failure> {
    if answers == asked {
        return Ok(());
    }
    let message = format!("the store answered for {answers} {what} and was asked for {asked}");
    Err(Error::new(ErrorKind::Internal, message).into())
}

/// The only result of a call with one item.
pub(crate) fn only<T>(mut answers: Vec<T>, what: &str) -> Result<T, Failure> {
    all_answered(answers.len(), 1, what)?;
    let answer = answers.pop();
    answer.ok_or_else(|| Error::new(ErrorKind::Internal, format!("the store did not answer for {what}")).into())
}

/// A JSON response.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> RouteResult {
    let mut bytes = Vec::with_capacity(256);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => Ok(json_bytes(status, bytes.into())),
        Err(error) => Err(Failure::new(
            Code::Internal,
            format!("the answer cannot be serialized as JSON: {error}"),
        )),
    }
}

/// A response of serialized JSON.
pub(crate) fn json_bytes(status: StatusCode, body: Bytes) -> Response {
    with_type(status, body, HeaderValue::from_static("application/json"))
}

/// A response with a body. It is never cacheable: it is about the present.
pub(crate) fn with_type(status: StatusCode, body: Bytes, kind: HeaderValue) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 204 without a body.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
