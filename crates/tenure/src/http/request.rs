//! One request: its deadline, its not-after, its single retry, and what its answer means.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::Call;
use tenure_core::timeout::Timeout;

use super::base::advice;
use super::connector::Current;
use super::{HttpStore, Inner, Shown};
use crate::heart::run_on;
use crate::wire::{Code, NOT_AFTER, Now, PROBLEM_JSON, Problem, STORE_TIME};

/// A request that is being put together.
pub(super) struct Request {
    method: Method,
    url: Result<Url>,
    body: Option<Result<Vec<u8>>>,
    effect: Effect,
    patience: Duration,
    expected: &'static [Code],
    token: Option<HeaderValue>,
}

/// What sending it twice, or too late, would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing: it reads, or it is a beat.
    Harmless,
    /// It changes something, within these limits.
    Mutates(Call),
    /// It changes what is durable, which must go on while the hot store, whose clock a not-after is on, is away: the
    /// not-after is sent when that clock is known.
    Commits,
}

/// An answer: its status, its headers and its body, which is already read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Vec<u8>,
    /// Set when it is a problem that the request expected.
    pub(super) problem: Option<(Code, Box<Problem>)>,
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// `Internal` when it is not what this version understands.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "the daemon's answer is not what this version understands",
            )
            .because(error)
        })
    }
}

impl HttpStore {
    /// A request that changes nothing.
    pub(super) fn read(&self, path: &[&str]) -> Request {
        self.request(Method::GET, path, Effect::Harmless)
    }

    /// A beat: it extends only what is alive, so that sending it again is harmless.
    pub(super) fn harmless(&self, method: Method, path: &[&str]) -> Request {
        self.request(method, path, Effect::Harmless)
    }

    /// A request that changes something.
    pub(super) fn mutate(&self, method: Method, path: &[&str], call: Call) -> Request {
        self.request(method, path, Effect::Mutates(call))
    }

    /// A request that changes what is durable, whether or not the store's clock is known.
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
            expected: &[],
            token: None,
        }
    }

    /// Sends a request on the client's runtime and reads its answer.
    ///
    /// # Errors
    /// What the daemon answered, or `Unavailable` with whether the request may have taken effect.
    pub(super) async fn send(&self, request: Request) -> Result<Answer> {
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

    /// Adds a body.
    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| Error::new(ErrorKind::Internal, "a request cannot be written as JSON").because(error));
        self.body = Some(bytes);
        self
    }

    /// Shows a token, which is in no log and no error.
    pub(super) fn token(mut self, token: Option<HeaderValue>) -> Self {
        self.token = token;
        self
    }

    /// Waits longer (or shorter) than usual.
    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Takes problems with these codes as answers, because they tell more than an error can carry.
    pub(super) fn expects(mut self, codes: &'static [Code]) -> Self {
        self.expected = codes;
        self
    }
}

/// A request that is ready to go.
struct Ready {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    expected: &'static [Code],
    token: Option<HeaderValue>,
}

impl Inner {
    fn url(&self, path: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        for segment in path {
            // A URL treats these as "here" and "up", however they are written.
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

    async fn send(&self, request: Request) -> Result<Answer> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::unavailable("this client is closed", Outcome::Unchanged));
        }
        let give_up = self.clock.mono() + request.patience;
        let body = request.body.transpose()?;
        let ready = Ready {
            method: request.method,
            url: request.url?,
            body,
            expected: request.expected,
            token: request.token,
        };
        let timeout = match request.effect {
            Effect::Harmless => Timeout::read(request.patience),
            Effect::Mutates(_) | Effect::Commits => Timeout::change(request.patience),
        };
        let sending = async {
            match request.effect {
                Effect::Harmless => self.harmless(&ready).await,
                Effect::Mutates(call) => self.mutating(&ready, call, give_up).await,
                Effect::Commits => self.committing(&ready, give_up).await,
            }
        };
        let sent = within(&*self.clock, request.patience, sending).await;
        sent.unwrap_or_else(|| {
            self.timed_out();
            Err(timeout.no_answer(&self.base))
        })
    }

    /// Sends it, and once more when the connection broke under it.
    async fn harmless(&self, ready: &Ready) -> Result<Answer> {
        match self.once(ready, Call::default()).await {
            Err(Failed::Broken(_)) => self
                .once(ready, Call::default())
                .await
                .map_err(|failed| failed.into_error(Outcome::Unchanged)),
            other => other.map_err(|failed| failed.into_error(Outcome::Unchanged)),
        }
    }

    /// Sends it with a not-after. When that turns out to be too early although the caller is still there (the store's
    /// clock was set forward), it certainly changed nothing, and is sent again with what was learnt.
    async fn mutating(&self, ready: &Ready, call: Call, give_up: Mono) -> Result<Answer> {
        if !self.store_clock.is_fresh(self.clock.mono()) {
            self.ask_now().await?;
        }
        let limits = self.store_clock.not_after(give_up, call);
        let unknown = |failed: Failed| failed.into_error(Outcome::Unknown);
        match self.once(ready, limits).await.map_err(unknown) {
            Err(error) if error.kind() == ErrorKind::TooLate && limits != call => {
                self.ask_now().await?;
                let limits = self.store_clock.not_after(give_up, call);
                self.once(ready, limits).await.map_err(unknown)
            }
            other => other,
        }
    }

    /// Sends it with a not-after if the store's clock is known, and without one if not, or when what was known is no more.
    async fn committing(&self, ready: &Ready, give_up: Mono) -> Result<Answer> {
        let limits = match self.store_clock.is_fresh(self.clock.mono()) {
            true => self.store_clock.not_after(give_up, Call::default()),
            false => Call::default(),
        };
        let unknown = |failed: Failed| failed.into_error(Outcome::Unknown);
        match self.once(ready, limits).await.map_err(unknown) {
            Err(error) if error.kind() == ErrorKind::TooLate => {
                self.once(ready, Call::default()).await.map_err(unknown)
            }
            other => other,
        }
    }

    /// Asks for the store's time.
    async fn ask_now(&self) -> Result<()> {
        let ready = Ready {
            method: Method::GET,
            url: self.url(&["v1", "now"])?,
            body: None,
            expected: &[],
            token: None,
        };
        let asked = self.clock.mono();
        let now: Now = self.harmless(&ready).await?.json()?;
        self.store_clock.learn(now.now, asked, self.clock.mono());
        Ok(())
    }

    /// Sends it, and once more when nothing was done the first time and something is different by now: the token, which the
    /// daemon does not know, or the files of TLS, with which there was no connection.
    async fn once(&self, ready: &Ready, limits: Call) -> Result<Answer, Failed> {
        let Current { client, number } = self.connector.current();
        match self.sent(&client, ready, limits).await {
            Err(Failed::Unknown(error)) => match self.another_token().await {
                Ok(true) => self.sent(&client, ready, limits).await,
                Ok(false) => Err(Failed::Unknown(error)),
                Err(trouble) => Err(Failed::Answered(trouble.because(error))),
            },
            // A certificate that is refused may break the connection only after the request was written.
            Err(failed @ (Failed::NotSent(..) | Failed::Broken(_))) => {
                let is_renewed = self.connector.is_renewed(number).await;
                if is_renewed && matches!(failed, Failed::NotSent(..)) {
                    let client = self.connector.current().client;
                    return self.sent(&client, ready, limits).await;
                }
                Err(failed)
            }
            other => other,
        }
    }

    /// Reads the file of the token again; whether there is another one in it.
    async fn another_token(&self) -> Result<bool> {
        let Some(shown) = &self.token else {
            return Ok(false);
        };
        let token = shown.lock().unwrap_or_else(PoisonError::into_inner).token.clone();
        // A file may lie on a disk that is away.
        let read = tokio::task::spawn_blocking(move || token.changed()).await;
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading the token panicked")));
        let Some(token) = read? else {
            return Ok(false);
        };
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = Shown::new(token)?;
        tracing::info!(daemon = %self.base, "the token has changed");
        Ok(true)
    }

    fn shown(&self) -> Option<HeaderValue> {
        let shown = self.token.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(shown.header.clone())
    }

    async fn sent(&self, client: &Client, ready: &Ready, limits: Call) -> Result<Answer, Failed> {
        let mut request = client.request(ready.method.clone(), ready.url.clone());
        if let Some(at) = limits.not_after {
            request = request.header(NOT_AFTER, at.to_string());
        }
        if let Some(token) = ready.token.clone().or_else(|| self.shown()) {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(body) = &ready.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let asked = self.clock.mono();
        let response = request.send().await.map_err(|error| self.failed(error))?;
        self.heard();
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

    async fn understand(&self, response: Response, expected: &[Code]) -> Result<Answer, Failed> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|error| self.failed(error))?.to_vec();
        if status.is_success() {
            self.set_down(None);
            return Ok(Answer {
                status,
                headers,
                body,
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
            return Ok(Answer {
                status,
                headers,
                body,
                problem: Some((code, Box::new(problem))),
            });
        }
        let error = problem.map_or_else(|| stranger(status, &headers), Problem::into_error);
        match error.kind() {
            ErrorKind::Unavailable => self.set_down(Some(error.message().to_owned())),
            _ => self.set_down(None),
        }
        match status {
            StatusCode::UNAUTHORIZED => Err(Failed::Unknown(error)),
            _ => Err(Failed::Answered(error)),
        }
    }

    fn failed(&self, error: reqwest::Error) -> Failed {
        // Without the URL, which is in our own message already.
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
            Failed::NotSent(message, error)
        } else {
            Failed::Broken((message, error))
        }
    }
}

/// Why a request has no good answer.
enum Failed {
    /// The daemon (or something in between) said so.
    Answered(Error),
    /// The daemon does not know who is calling. Nothing was done.
    Unknown(Error),
    /// There was no connection: nothing was sent.
    NotSent(String, reqwest::Error),
    /// The connection broke with the request under way.
    Broken((String, reqwest::Error)),
}

impl Failed {
    /// `broken` is the outcome of a request that may have arrived.
    fn into_error(self, broken: Outcome) -> Error {
        match self {
            Self::Answered(error) | Self::Unknown(error) => error,
            Self::NotSent(message, cause) => Error::unavailable(message, Outcome::Unchanged).because(cause),
            Self::Broken((message, cause)) => Error::unavailable(message, broken).because(cause),
        }
    }
}

/// The causes of an error, `a: b: c`, without its own sentence, which says nothing.
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

/// An error that no Tenure daemon wrote: a proxy in between, or another server altogether.
fn stranger(status: StatusCode, headers: &HeaderMap) -> Error {
    if status.is_server_error() {
        let error = Error::unavailable(
            format!("something between here and the daemon answered {status}"),
            Outcome::Unknown,
        );
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
    Error::new(
        kind,
        format!("the answer {status} is not from a Tenure daemon; check the host, port and path of the store URL"),
    )
}
