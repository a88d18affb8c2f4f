//! The pulse of the store, beaten after one call took the path of a member's beat: a turn of the accept loop, the router,
//! the room for beats and a handler. A daemon that is blocked beats no pulse, so none of its members is ended.
//!
//! The daemon's own refusals are no silence of the store: they lengthen lives by [`Spare`](tenure_core::sweep::Spare)
//! alone, and the pulse goes on.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use tenure::loops::{LoopBody, Turn};
use tenure::wire::Problem;
use tenure_core::clock::within;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::settling::{LEVELS, PULSE_EVERY};
use tenure_core::store::PROBE_GROUP;
use tokio::sync::{mpsc, oneshot};
use tower::Service;

use crate::app::App;

/// The most that is read of a refusal.
const LONGEST_ANSWER: usize = 16 * 1024;

/// Marks a request of the daemon to itself. Only this module makes one; no request from outside can carry it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRequest(());

/// The accept loop's side: it answers each check.
pub(crate) type AcceptChecks = mpsc::Receiver<oneshot::Sender<()>>;

/// The loop that beats the pulse while the daemon listens.
pub(crate) struct OwnBeat {
    app: Weak<App>,
    router: Router,
    accept_loop: mpsc::Sender<oneshot::Sender<()>>,
}

impl OwnBeat {
    /// The loop, and what the accept loop has to answer.
    pub(crate) fn new(app: &Arc<App>, router: &Router) -> (impl Fn() -> Self + Send + 'static, AcceptChecks) {
        let (accept_loop, checks) = mpsc::channel(1);
        let (app, router) = (Arc::downgrade(app), router.clone());
        let make = move || Self {
            app: Weak::clone(&app),
            router: router.clone(),
            accept_loop: accept_loop.clone(),
        };
        (make, checks)
    }

    /// Takes the path of a beat. The handler of the empty beat beats the pulse.
    async fn send(&mut self, app: &App) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let closed = || Error::unavailable("the daemon does not listen", Outcome::Unchanged);
        self.accept_loop.send(answer).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?;
        let mut request = Request::new(Body::from("{\"beats\":[]}"));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("/v1/groups/{PROBE_GROUP}/beats")
            .parse()
            .map_err(|error| closed().because(error))?;
        let json = axum::http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
        request.extensions_mut().insert(OwnRequest(()));
        let answer = self.router.call(request).await.map_err(|never| match never {})?;
        match answer.status() {
            StatusCode::OK => Ok(()),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => app.pulser.beat().await.map(drop),
            status => {
                let body = to_bytes(answer.into_body(), LONGEST_ANSWER).await.unwrap_or_default();
                let problem = serde_json::from_slice(&body);
                let why = problem.map_or_else(|_| status.to_string(), |problem: Problem| problem.detail);
                let message = format!("a beat of the daemon to itself failed: {why}");
                Err(Error::unavailable(message, Outcome::Unchanged))
            }
        }
    }
}

#[async_trait]
impl LoopBody for OwnBeat {
    async fn turn(&mut self) -> Result<Turn> {
        let Some(app) = self.app.upgrade().filter(|app| !app.draining.is_cancelled()) else {
            return Ok(Turn::idle());
        };
        let late = || Error::unavailable("the daemon did not answer itself in time", Outcome::Unchanged);
        within(&*app.clock, LEVELS[0], self.send(&app))
            .await
            .ok_or_else(late)??;
        Ok(Turn::again_in(PULSE_EVERY))
    }
}
