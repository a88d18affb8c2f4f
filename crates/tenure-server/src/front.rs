//! What stands in front of every route: who may ask and how often, the limit on requests at once, panics, measuring, the
//! log of operators, and the store's time.
//!
//! It is one layer on purpose. Beats are most of the traffic, and every layer of a stack of five would box a future and
//! look at the clock by itself.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tenure::wire::{Code, Problem, STORE_TIME};
use tenure_core::error::Outcome;
use tower::{Layer, Service};

use crate::app::{App, Inside};
use crate::audit::Witness;
use crate::auth::{Caller, Rule, Rules, Shut};
use crate::meters::{RouteMeters, method_name};
use crate::reply::Failure;

/// How a route is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Counted against the limit of requests at once; its answer tells the store's time.
    Usual,
    /// The same, but for the store's time, which nobody needs from a single beat.
    Beat,
    /// May wait long and has a limit of its own.
    Long,
    /// Answers also when everything else is refused.
    Probe,
}

/// Puts a [`Front`] before a route.
#[derive(Clone)]
pub(crate) struct FrontLayer {
    pub(crate) app: Arc<App>,
    pub(crate) class: Class,
    pub(crate) route: Arc<Route>,
}

/// What is the same for all requests of a route.
pub(crate) struct Route {
    pub(crate) meters: RouteMeters,
    pub(crate) rules: Rules,
}

impl<S> Layer<S> for FrontLayer {
    type Service = Front<S>;

    fn layer(&self, inner: S) -> Front<S> {
        Front {
            inner,
            layer: self.clone(),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Front<S> {
    inner: S,
    layer: FrontLayer,
}

impl<S> Service<Request> for Front<S>
where
    S: Service<Request, Error = Infallible> + Send + 'static,
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
        let FrontLayer { app, class, route } = self.layer.clone();
        let begun = app.clock.mono();
        let method = method_name(request.method());
        let rule = route.rules.of_method(request.method());
        let mut witness = Witness::of(&app, &route, rule, method, &mut request);
        let admitted = admit(&app, rule, &request, witness.as_mut());
        let told = move |app: &App, route: &Route, response: &Response| {
            if let Some(witness) = witness {
                witness.tell(response.status());
            }
            let took = app.clock.mono().since(begun);
            route.meters.answered(method, response.status().as_u16(), took);
        };
        let caller = match admitted {
            Ok(caller) => caller,
            Err(refused) => {
                let response = refused.into_response();
                told(&app, &route, &response);
                return Box::pin(ready(Ok(response)));
            }
        };
        // Nobody asks a beat who it was.
        if class != Class::Beat {
            request.extensions_mut().insert(caller);
        }
        let place = match class {
            Class::Usual | Class::Beat => Inside::enter(&app, |app| &app.requests),
            Class::Long | Class::Probe => None,
        };
        let full = place.is_none() && matches!(class, Class::Usual | Class::Beat);
        let answer = (!full).then(|| self.inner.call(request));
        Box::pin(async move {
            let _place = place;
            let mut response = match answer {
                Some(answer) => match AssertUnwindSafe(answer).catch_unwind().await {
                    Ok(Ok(response)) => response.into_response(),
                    Err(panic) => panicked(&route.meters, &*panic),
                },
                None => overloaded().into_response(),
            };
            if class == Class::Usual
                && let Some(at) = app.store_time()
                && let Ok(value) = HeaderValue::try_from(at.to_string())
            {
                response.headers_mut().insert(STORE_TIME, value);
            }
            told(&app, &route, &response);
            Ok(response)
        })
    }
}

/// Lets a request in, or does not; a witness gets to know who it was.
fn admit(app: &App, rule: &Rule, request: &Request, witness: Option<&mut Witness>) -> Result<Caller, Failure> {
    app.door.check(request)?;
    let admitted: Result<Caller, Shut> = app.admit(rule, request);
    if let Some(witness) = witness {
        witness.saw(match &admitted {
            Ok(caller) => caller.name(),
            Err(shut) => shut.who(),
        });
    }
    admitted.map_err(Shut::into_failure)
}

/// The refusal of a request that came on top of too many.
#[cold]
pub(crate) fn overloaded() -> Failure {
    let problem = Problem::new(
        Code::Overloaded,
        "too many requests are being answered; nothing was done",
    )
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
    let problem = Problem::new(Code::Internal, "the handler of this request panicked; it is in the log")
        .with_outcome(Outcome::Unknown);
    Failure::from(problem).into_response()
}
