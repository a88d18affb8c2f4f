//! `/metrics` for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use tenure::wire::Code;

use super::status::store_state;
use crate::app::App;
use crate::extract::NoQuery;
use crate::meters::{self, BODIES, IN_FLIGHT, STORE_UP, STREAMS, WAITERS};
use crate::reply::{Failure, RouteResult, with_type};

/// The path of the metrics.
pub(crate) const PATH: &str = "/metrics";
/// The media type of Prometheus' text format.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Get metrics in Prometheus' text format
///
/// Works while the store is down, too.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon",
    security(("token" = ["read", "everywhere"])),
    responses(
        (status = 200, description = "The metrics of this process", body = String, content_type = "text/plain"),
        (status = 501, description = "The embedding program records metrics itself", body = tenure::wire::Problem, content_type = "application/problem+json")
    )
)]
pub(crate) async fn scrape(State(app): State<Arc<App>>, _: NoQuery) -> RouteResult {
    let Some(recorder) = meters::recorder() else {
        return Err(Failure::new(
            Code::Unsupported,
            "the program that embeds this daemon records metrics itself",
        ));
    };
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
    let set = |name: &'static str, value: usize| ::metrics::gauge!(name).set(value as f64);
    set(IN_FLIGHT, app.in_flight());
    set(BODIES, app.bodies.reading() + app.beat_bodies.reading());
    set(STREAMS, app.streams.held());
    set(WAITERS, app.waiters.held());
    set(STORE_UP, usize::from(store_state(&app).up));
    Ok(with_type(StatusCode::OK, recorder.render().into(), TEXT))
}
