//! Answers: JSON, and problems.

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure::wire::{Code, PROBLEM_JSON, Problem};
use tenure_core::error::{Error, ErrorKind};

/// What a handler answers when it does not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure(Box<Refusal>);

#[derive(Debug)]
struct Refusal {
    problem: Problem,
    /// With 401: what would have helped (RFC 9110, 11.6.1).
    challenge: Option<HeaderValue>,
}

/// What handlers answer.
pub(crate) type Answer = Result<Response, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// Adds what would have helped, in the words of `WWW-Authenticate`.
    pub(crate) fn with_challenge(mut self, challenge: &str) -> Self {
        self.0.challenge = HeaderValue::from_str(challenge).ok();
        self
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let challenge = None;
        Self(Box::new(Refusal { problem, challenge }))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if Code::of(&error) == Code::Internal {
            tracing::error!(error = error.chain(), "an internal error");
        }
        Problem::from(&error).into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Refusal { problem, challenge } = *self.0;
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

/// Refuses answers of a store that are fewer than the questions: they could be told apart no more.
pub(crate) fn all_answered(answers: usize, asked: usize, what: &str) -> Result<(), Failure> {
    if answers == asked {
        return Ok(());
    }
    let message = format!("the store answered for {answers} {what} and was asked for {asked}");
    Err(Error::new(ErrorKind::Internal, message).into())
}

/// The answer of a store to the only question it was asked.
pub(crate) fn only<T>(mut answers: Vec<T>, what: &str) -> Result<T, Failure> {
    all_answered(answers.len(), 1, what)?;
    let answer = answers.pop();
    answer.ok_or_else(|| Error::new(ErrorKind::Internal, format!("the store did not answer for {what}")).into())
}

/// A JSON answer.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Answer {
    let mut bytes = Vec::with_capacity(256);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => Ok(json_bytes(status, bytes.into())),
        Err(error) => Err(Failure::new(
            Code::Internal,
            format!("the answer cannot be written as JSON: {error}"),
        )),
    }
}

/// JSON that is written already.
pub(crate) fn json_bytes(status: StatusCode, body: Bytes) -> Response {
    with_type(status, body, HeaderValue::from_static("application/json"))
}

/// A body of a type. Nothing that this server says may be kept: it is about now.
pub(crate) fn with_type(status: StatusCode, body: Bytes, kind: HeaderValue) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// No body.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
