//! A single request: its deadline, not-after and retry, and the meaning of its answer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::escape::server_words;
use tenure_core::store::Call;

use super::base::advice;
use super::connector::CurrentClient;
use super::repeat::is_unanswered;
use super::{HttpStore, Inner, TokenHeader};
use crate::heartbeat::run_on;
use crate::trace;
use crate::wire::{Code, NOT_AFTER, PROBLEM_JSON, Problem, STORE_TIME};

/// A request being built.
pub(super) struct Request {
    method: Method,
    url: Result<Url>,
    body: Option<Result<Vec<u8>>>,
    effect: Effect,
    patience: Duration,
    /// Until when it may take effect, if that is before the time-out.
    takes_effect: Option<Duration>,
    expected: &'static [Code],
    token: Option<HeaderValue>,
    repeatable: bool,
}

/// The effect of a repeated or late request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// None: a read or a beat.
    Harmless,
    /// A change, within these limits.
    Mutates(Call),
    /// A durable change, which must work while the hot store is down. The not-after is on the hot store's clock, so it
    /// is sent only if that clock is known.
    Commits,
}

/// A response: status, headers and the complete body.
pub(super) struct DaemonResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Vec<u8>,
    /// What is known of the request's effect if the body is not understood.
    outcome: Outcome,
    /// The problem, if the request expected one with this code.
    pub(super) problem: Option<(Code, Box<Problem>)>,
}

impl DaemonResponse {
    /// Parses the body.
    ///
    /// # Errors
    /// `Internal` if this version does not understand it.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "this version does not understand the daemon's answer",
            )
            .with_outcome(self.outcome)
            .because(error)
        })
    }
}

impl HttpStore {
    /// A request that changes nothing.
    pub(super) fn read(&self, path: &[&str]) -> Request {
        self.request(Method::GET, path, Effect::Harmless)
    }

    /// A request that is safe to repeat, like a beat, which only extends a living tenure.
    pub(super) fn harmless(&self, method: Method, path: &[&str]) -> Request {
        self.request(method, path, Effect::Harmless)
    }

    /// A request that changes something.
    pub(super) fn mutate(&self, method: Method, path: &[&str], call: Call) -> Request {
        self.request(method, path, Effect::Mutates(call))
    }

    /// A request for a durable change, sent whether or not the store's clock is known.
    pub(super) fn commit(&self, method: Method, path: &[&str]) -> Request {
        self.request(method, path, Effect::Commits)
    }

    fn request(&self, method: Method, path: &[&str], effect: Effect) -> Request {
        Request {
            method,
            url: self.inner.url(path),
            body: None,
            effect,
            patience: self.inner.settings.request_timeout,
            takes_effect: None,
            expected: &[],
            token: None,
            repeatable: true,
        }
    }

    /// Sends a request on the client's runtime and reads the response.
    ///
    /// # Errors
    /// The daemon's error, or `Unavailable` with whether the request may have taken effect.
    pub(super) async fn send(&self, request: Request) -> Result<DaemonResponse> {
        let inner = Arc::clone(&self.inner);
        let sent = async move {
            inner.connector.follow(inner.clock.mono());
            inner.send(request).await
        };
        run_on(&self.inner.runtime, sent).await?
    }
}

impl Request {
    /// Adds query parameters.
    pub(super) fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        if let Ok(url) = &mut self.url
            && !pairs.is_empty()
        {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        self
    }

    /// Sets the body.
    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| Error::new(ErrorKind::Internal, "a request cannot be serialized as JSON").because(error));
        self.body = Some(bytes);
        self
    }

    /// Sets a token. It appears in no log and no error.
    pub(super) fn token(mut self, token: Option<HeaderValue>) -> Self {
        self.token = token;
        self
    }

    /// Sets the time-out.
    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Waits this much longer for the answer. The request itself takes effect within the usual time-out.
    pub(super) fn wait(mut self, wait: Duration) -> Self {
        self.takes_effect = Some(self.patience);
        self.patience += wait;
        self
    }

    /// Sends it on a connection of its own, and not again when that breaks: a repetition could hit what another caller
    /// made since.
    pub(super) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// Returns problems with these codes as responses, because they carry more than an error.
    pub(super) fn expects(mut self, codes: &'static [Code]) -> Self {
        self.expected = codes;
        self
    }
}

/// A request that is ready to send.
pub(super) struct PreparedRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Vec<u8>>,
    pub(super) expected: &'static [Code],
    pub(super) token: Option<HeaderValue>,
    pub(super) repeatable: bool,
}

impl Inner {
    pub(super) fn url(&self, path: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        for segment in path {
            // URLs interpret these segments as "current" and "parent", even if escaped.
            if matches!(*segment, "." | "..") {
                return Err(Error::invalid(format!(
                    "the name {segment:?} cannot be part of a URL; use another one over HTTP"
                )));
            }
        }
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Ok(url)
    }

    async fn send(&self, request: Request) -> Result<DaemonResponse> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::unavailable("this client is closed", Outcome::Unchanged));
        }
        let give_up = self.clock.mono() + request.takes_effect.unwrap_or(request.patience);
        let body = request.body.transpose()?;
        let ready = PreparedRequest {
            method: request.method,
            url: request.url?,
            body,
            expected: request.expected,
            token: request.token,
            repeatable: request.repeatable,
        };
        let (effect, patience) = (request.effect, request.patience);
        let first = self.answer(&ready, effect, patience, give_up).await;
        let mut answer = match first {
            // A durable change is the same change when it is repeated.
            Err(error) if effect == Effect::Commits && is_unanswered(&error) => {
                let give_up = self.clock.mono() + patience;
                self.answer(&ready, effect, patience, give_up).await?
            }
            first => first?,
        };
        if let Effect::Mutates(_) | Effect::Commits = effect {
            answer.outcome = Outcome::Unknown;
        }
        Ok(answer)
    }

    /// Sends it, and once more when its connection broke: an idle connection may have been closed by the other side.
    /// Also when connecting failed and the TLS files have changed. Not after `give_up`, when it must not take effect.
    pub(super) async fn once(
        &self,
        ready: &PreparedRequest,
        limits: Call,
        give_up: Mono,
    ) -> Result<DaemonResponse, RequestFailure> {
        if !ready.repeatable {
            let client = self.connector.unused().map_err(RequestFailure::Answered)?;
            return self.accepted(&client, ready, limits).await;
        }
        let CurrentClient { client, number, .. } = self.connector.current();
        let failed = match self.accepted(&client, ready, limits).await {
            Err(failed @ (RequestFailure::NotSent(..) | RequestFailure::Broken(_))) => failed,
            other => return other,
        };
        // A rejected certificate may break the connection only after the request was written.
        let is_renewed = self.connector.is_renewed(number).await;
        let is_broken = matches!(failed, RequestFailure::Broken(_));
        if is_broken {
            self.connector.drop_idle(number);
        }
        if !is_broken && !is_renewed || self.clock.mono() >= give_up {
            return Err(failed);
        }
        let again = self.accepted(&self.connector.current().client, ready, limits).await;
        match is_broken {
            true => again.map_err(RequestFailure::after_broken),
            false => again,
        }
    }

    /// Sends it, and once more if the token was rejected and its file has a new one.
    async fn accepted(
        &self,
        client: &Client,
        ready: &PreparedRequest,
        limits: Call,
    ) -> Result<DaemonResponse, RequestFailure> {
        match self.sent(client, ready, limits).await {
            Err(RequestFailure::Unknown(error)) => match self.another_token().await {
                Ok(true) => self.sent(client, ready, limits).await,
                Ok(false) => Err(RequestFailure::Unknown(error)),
                Err(trouble) => Err(RequestFailure::Answered(trouble.because(error))),
            },
            other => other,
        }
    }

    /// Re-reads the token file. Returns whether it has a new token.
    async fn another_token(&self) -> Result<bool> {
        let Some(shown) = &self.token else {
            return Ok(false);
        };
        let token = shown.lock().unwrap_or_else(PoisonError::into_inner).token.clone();
        // The file may be on a disk that hangs.
        let read = tokio::task::spawn_blocking(move || token.changed()).await;
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading the token panicked")));
        let Some(token) = read? else {
            return Ok(false);
        };
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = TokenHeader::new(token)?;
        tracing::info!(daemon = %self.base, "the token has changed");
        Ok(true)
    }

    fn shown(&self) -> Option<HeaderValue> {
        let shown = self.token.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(shown.header.clone())
    }

    async fn sent(
        &self,
        client: &Client,
        ready: &PreparedRequest,
        limits: Call,
    ) -> Result<DaemonResponse, RequestFailure> {
        let mut request = client.request(ready.method.clone(), ready.url.clone());
        if let Some(at) = limits.not_after {
            request = request.header(NOT_AFTER, at.to_string());
        }
        if let Some(token) = ready.token.clone().or_else(|| self.shown()) {
            request = request.header(AUTHORIZATION, token);
        }
        for (name, value) in trace::headers() {
            request = request.header(name, value);
        }
        if let Some(body) = &ready.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let asked = self.clock.mono();
        let response = request.send().await.map_err(|error| self.failed(error))?;
        self.answered();
        let told = response
            .headers()
            .get(STORE_TIME)
            .and_then(|at| at.to_str().ok())
            .and_then(|at| at.parse().ok());
        if let Some(store_time) = told {
            self.store_clock.learn(store_time, asked, self.clock.mono());
        }
        self.understand(response, ready.expected).await
    }

    async fn understand(&self, response: Response, expected: &[Code]) -> Result<DaemonResponse, RequestFailure> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|error| self.failed(error))?.to_vec();
        if status.is_success() {
            self.set_down(None);
            return Ok(DaemonResponse {
                status,
                headers,
                body,
                outcome: Outcome::Unchanged,
                problem: None,
            });
        }
        let is_problem = headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(PROBLEM_JSON.as_bytes()));
        let problem = if is_problem {
            serde_json::from_slice::<Problem>(&body).ok()
        } else {
            None
        };
        let code = problem.as_ref().and_then(|problem| Code::parse(&problem.code));
        let code = code.filter(|code| expected.contains(code));
        if let (Some(code), Some(problem)) = (code, problem.clone()) {
            self.set_down(None);
            return Ok(DaemonResponse {
                status,
                headers,
                body,
                outcome: Outcome::Unchanged,
                problem: Some((code, Box::new(problem))),
            });
        }
        let error = problem.map_or_else(|| foreign_response(status, &headers, &body), Problem::into_error);
        match error.kind() {
            ErrorKind::Unavailable => self.set_down(Some(error.message().to_owned())),
            _ => self.set_down(None),
        }
        match status {
            StatusCode::UNAUTHORIZED => Err(RequestFailure::Unknown(error)),
            _ => Err(RequestFailure::Answered(error)),
        }
    }

    fn failed(&self, error: reqwest::Error) -> RequestFailure {
        // The URL is already in our message.
        let error = error.without_url();
        let cause = chain(&error);
        let advice = advice(&cause);
        if error.is_timeout() && !error.is_connect() {
            self.timed_out();
        } else {
            self.set_down(Some(cause));
        }
        let message = match advice {
            Some(advice) => format!("{} cannot be reached: {advice}", self.base),
            None => format!("{} cannot be reached", self.base),
        };
        if error.is_connect() {
            RequestFailure::NotSent(message, error)
        } else {
            RequestFailure::Broken((message, error))
        }
    }
}

/// Why a request has no good response.
pub(super) enum RequestFailure {
    /// The daemon (or a proxy) returned an error.
    Answered(Error),
    /// The daemon rejected the token. Nothing was done.
    Unknown(Error),
    /// Connecting failed: nothing was sent.
    NotSent(String, reqwest::Error),
    /// The connection broke while the request was in flight.
    Broken((String, reqwest::Error)),
}

impl RequestFailure {
    /// The failure of a repetition: the request before it may have taken effect.
    fn after_broken(self) -> Self {
        match self {
            Self::Answered(error) => Self::Answered(error.with_outcome(Outcome::Unknown)),
            Self::Unknown(error) => Self::Unknown(error.with_outcome(Outcome::Unknown)),
            Self::NotSent(message, cause) => Self::Broken((message, cause)),
            broken @ Self::Broken(_) => broken,
        }
    }

    /// Converts to an error. `broken` is the outcome of a request that may have arrived; `Unchanged` for a read, whatever
    /// the answer says.
    pub(super) fn into_error(self, broken: Outcome) -> Error {
        match self {
            Self::Answered(error) | Self::Unknown(error) if broken == Outcome::Unchanged => error.with_outcome(broken),
            Self::Answered(error) | Self::Unknown(error) => error,
            Self::NotSent(message, cause) => Error::unavailable(message, Outcome::Unchanged).because(cause),
            Self::Broken((message, cause)) => Error::unavailable(message, broken).because(cause),
        }
    }
}

/// The causes of an error, `a: b: c`, without its own uninformative message.
fn chain(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    if causes.is_empty() {
        error.to_string()
    } else {
        causes.join(": ")
    }
}

/// The error for a response that does not come from a Tenure daemon: a proxy, or another server.
fn foreign_response(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let beginning = body.chunks(4096).next().unwrap_or_default();
    let words = server_words(&String::from_utf8_lossy(beginning));
    let with_words = |error: Error| if words.is_empty() { error } else { error.because(words) };
    if status.is_server_error() {
        let message = format!("a proxy before the daemon answered {status}");
        let error = with_words(Error::unavailable(message, Outcome::Unknown));
        let after = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok());
        return match after {
            Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
            None => error,
        };
    }
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            ErrorKind::Denied
        }
        _ => ErrorKind::Misconfigured,
    };
    let message =
        format!("the answer {status} is not from a Tenure daemon; check the host, port and path of the store URL");
    with_words(Error::new(kind, message))
}
