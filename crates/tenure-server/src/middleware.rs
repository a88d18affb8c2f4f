//! The middleware of every route: admission, rate limit, body, concurrency limit, panics, metrics, audit log and the store's
//! time.
//!
//! It is one layer on purpose. Beats are most of the traffic, and each layer of a stack would box a future and read the
//! clock.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, EXPECT};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tenure::wire::{Code, Problem, STORE_TIME};
use tenure_core::error::Outcome;
use tower::{Layer, Service};

use crate::app::{App, BATCH};
use crate::audit::AuditEntry;
use crate::auth::{AdmitError, Caller, Peer, Rule, Rules};
use crate::bodies::{BodyError, ReadBody, discard_rest};
use crate::connections::Link;
use crate::meters::{RouteMeters, method_name};
use crate::own_beat::OwnRequest;
use crate::reply::Failure;
use crate::room::{Permit, Room, Share};
use crate::trace::RequestSpan;

/// The limits that apply to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Takes a permit; the answer carries the store's time.
    Usual,
    /// The same, with a larger body.
    Batch,
    /// One beat: takes a permit for beats; the answer carries no store time.
    Beat,
    /// A provider's heartbeat: takes a permit for beats.
    Heartbeat,
    /// Many beats: takes a permit for beats, with a larger body.
    Beats,
    /// May wait long, and limits itself.
    Long,
    /// The same; the answer carries the store's time.
    Wait,
    /// Takes no permit, so it answers under overload; reads no body.
    Probe,
}

impl Class {
    pub(crate) fn is_beat(self) -> bool {
        matches!(self, Self::Beat | Self::Heartbeat | Self::Beats)
    }

    /// The room that its requests take a permit of.
    fn room(self) -> Option<fn(&App) -> &Room> {
        match self {
            Self::Usual | Self::Batch => Some(|app| &app.requests),
            Self::Beat | Self::Heartbeat | Self::Beats => Some(|app| &app.beating),
            Self::Long | Self::Wait | Self::Probe => None,
        }
    }

    /// The largest body, in bytes.
    fn body_limit(self, app: &App) -> usize {
        let factor = if matches!(self, Self::Batch | Self::Beats) {
            BATCH
        } else {
            1
        };
        app.settings.body_limit.saturating_mul(factor)
    }

    fn tells_time(self) -> bool {
        !matches!(self, Self::Beat | Self::Long | Self::Probe)
    }
}

/// Wraps a route in a [`Middleware`].
#[derive(Clone)]
pub(crate) struct MiddlewareLayer {
    pub(crate) app: Arc<App>,
    pub(crate) class: Class,
    pub(crate) route: Arc<Route>,
}

/// The metrics and permissions of a route.
pub(crate) struct Route {
    pub(crate) meters: RouteMeters,
    pub(crate) rules: Rules,
}

impl<S> Layer<S> for MiddlewareLayer {
    type Service = Middleware<S>;

    fn layer(&self, inner: S) -> Middleware<S> {
        Middleware {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of this module around a route.
#[derive(Clone)]
pub(crate) struct Middleware<S> {
    inner: S,
    layer: MiddlewareLayer,
}

impl<S> Service<Request> for Middleware<S>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let layer = self.layer.clone();
        let begun = layer.app.clock.mono();
        let method = method_name(request.method());
        let rule = layer.route.rules.of_method(request.method());
        let mut entry = AuditEntry::of(&layer.app, &layer.route, rule, method, &mut request);
        let admitted = admit(&layer.app, rule, &request, entry.as_mut());
        let span = match admitted {
            Ok(_) => RequestSpan::begin(layer.class, method, layer.route.meters.route(), &request),
            Err(_) => RequestSpan::none(),
        };
        // Call the instance that was polled ready.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let mut response = match admitted {
                Ok(caller) => span.around(layer.answer(inner, caller, request)).await,
                Err(refused) => unread(&layer.app, refused, request).await,
            };
            if let Some(entry) = entry {
                entry.finish(response.status());
            }
            // The connection closes after this answer.
            if layer.app.draining.is_cancelled() {
                response = closing(response);
            }
            let took = layer.app.clock.mono().since(begun);
            layer.route.meters.answered(method, response.status().as_u16(), took);
            span.answered(response.status().as_u16());
            Ok(response)
        })
    }
}

impl MiddlewareLayer {
    /// Answers an admitted request: reads its body, takes a permit and calls the handler.
    async fn answer<S>(&self, inner: S, caller: Caller, request: Request) -> Response
    where
        S: Service<Request, Error = Infallible>,
        S::Response: IntoResponse,
    {
        let Self { app, class, .. } = self;
        if *class == Class::Probe {
            return self.probe(inner, caller, request).await;
        }
        let peer = request.extensions().get::<Peer>();
        let link = peer.map(|peer| Arc::clone(&peer.link));
        let share = Share::of(app.seed, &caller, peer.map(|peer| peer.address), request.uri().path());
        let (mut request, held) = match self.read(share, request).await {
            Ok(read) => read,
            Err(failed) => return closing(failed.into_response()),
        };
        // A request that waits has parsed its body by then.
        let _held = held.filter(|_| *class != Class::Wait);
        let _answering = link.as_ref().map(Link::answering);
        let place = class.room().map(|room| Permit::enter(app, room, share));
        let mut response = if matches!(place, Some(None)) {
            if class.is_beat() {
                app.beat_was_refused(request.uri().path());
            }
            overloaded().into_response()
        } else {
            // The handler of a single beat does not read the caller.
            if *class != Class::Beat {
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(share);
            }
            self.ask(inner, request).await
        };
        if class.tells_time()
            && let Some(at) = app.store_time()
            && let Ok(value) = HeaderValue::try_from(at.to_string())
        {
            response.headers_mut().insert(STORE_TIME, value);
        }
        if let Some(link) = link {
            link.answered(app.clock.mono());
        }
        response
    }

    /// Answers a request that takes no permit, without reading its body.
    async fn probe<S>(&self, inner: S, caller: Caller, mut request: Request) -> Response
    where
        S: Service<Request, Error = Infallible>,
        S::Response: IntoResponse,
    {
        let has_body = !request.body().is_end_stream();
        request.extensions_mut().insert(caller);
        let response = self.ask(inner, request).await;
        if has_body { closing(response) } else { response }
    }

    /// Reads the body, before the request takes a permit.
    async fn read(&self, share: Share, request: Request) -> Result<(Request, Option<ReadBody<'_>>), Failure> {
        let Self { app, class, .. } = self;
        if request.body().is_end_stream() {
            return Ok((request, None));
        }
        let (head, body) = request.into_parts();
        let bodies = if class.is_beat() { &app.beat_bodies } else { &app.bodies };
        let read = bodies.read(&*app.clock, share, body, class.body_limit(app)).await;
        let whole = read.inspect_err(|unread| {
            if class.is_beat() && *unread == BodyError::NoRoom {
                app.beat_was_refused(head.uri.path());
            }
        })?;
        let body = Body::from(whole.bytes.clone());
        Ok((Request::from_parts(head, body), Some(whole)))
    }

    async fn ask<S>(&self, mut inner: S, request: Request) -> Response
    where
        S: Service<Request, Error = Infallible>,
        S::Response: IntoResponse,
    {
        match AssertUnwindSafe(inner.call(request)).catch_unwind().await {
            Ok(Ok(response)) => response.into_response(),
            Err(panic) => panicked(&self.route.meters, &*panic),
        }
    }
}

/// Answers a refused request whose body was not read. The body must not be parsed as the next request: a small one is
/// discarded; otherwise the connection closes after the answer.
async fn unread(app: &App, refused: Failure, request: Request) -> Response {
    let response = refused.into_response();
    let waits = request.headers().contains_key(EXPECT);
    let body = request.into_body();
    if body.is_end_stream() || (!waits && discard_rest(&*app.clock, body).await) {
        return response;
    }
    closing(response)
}

fn closing(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Admits a request, and records its caller in the audit entry.
fn admit(app: &App, rule: &Rule, request: &Request, entry: Option<&mut AuditEntry>) -> Result<Caller, Failure> {
    if request.extensions().get::<OwnRequest>().is_some() {
        return Ok(Caller::Anyone);
    }
    app.origin_check.check(request)?;
    let admitted: Result<Caller, AdmitError> = app.admit(rule, request);
    if let Some(entry) = entry {
        entry.set_caller(match &admitted {
            Ok(caller) => caller.name(),
            Err(shut) => shut.who(),
        });
    }
    admitted.map_err(AdmitError::into_failure)
}

/// The answer to a request that gets no permit.
#[cold]
pub(crate) fn overloaded() -> Failure {
    let problem = Problem::new(Code::Overloaded, "too many concurrent requests; nothing was done")
        .with_outcome(Outcome::Unchanged)
        .with_retry_after(Duration::from_millis(100));
    problem.into()
}

#[cold]
fn panicked(meters: &RouteMeters, panic: &(dyn std::any::Any + Send)) -> Response {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        route = meters.route(),
        panic = said.unwrap_or("(no message)"),
        "a handler panicked"
    );
    meters.panicked();
    let problem = Problem::new(Code::Internal, "the handler panicked; the daemon's log has the details")
        .with_outcome(Outcome::Unknown);
    Failure::from(problem).into_response()
}
