//! The routes, one file per noun.

mod beats;
mod events;
mod groups;
mod health;
mod leases;
mod members;
mod metrics;
pub(crate) mod openapi;
mod parameters;
mod registries;
mod root;
mod rosters;
mod sessions;
mod settle;
mod status;
mod stream;
mod sweep;
mod targets;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::routing::get;
use tenure::wire::Code;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Rules;
use crate::meters::RouteMeters;
use crate::middleware::{Class, MiddlewareLayer, Route};
use crate::reply::Failure;

/// All routes, ready to serve, with the document that describes them.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let (router, document) = all(app).split_for_parts();
    // It depends on the routes alone, so a value that is set already is the same.
    drop(app.openapi.set(openapi::write(&document)));
    let lost = no_such_route.layer(middleware(app, Class::Probe, "none"));
    // The files of the dashboard: open like its page, and no part of the API.
    let files = get(root::file).layer(middleware(app, Class::Probe, root::FILES));
    router
        .route(root::FILES, files)
        .fallback(lost)
        .with_state(Arc::clone(app))
}

/// Makes a route and its description.
type MakeRoute = fn() -> UtoipaMethodRouter<Arc<App>>;

fn all(app: &Arc<App>) -> OpenApiRouter<Arc<App>> {
    use Class::{Batch, Beat, Beats, Heartbeat, Long, Probe, Usual, Wait};
    // Made one by one: the descriptions of all routes at once would be several MiB, which the allocator keeps.
    let routes: &[(Class, MakeRoute)] = &[
        (Usual, || routes!(members::join, members::list)),
        (Usual, || routes!(members::one)),
        (Usual, || routes!(members::end)),
        (Usual, || routes!(members::set_labels)),
        (Beat, || routes!(beats::one)),
        (Beats, || routes!(beats::many)),
        (Usual, || {
            routes!(registries::claim, registries::look_up, registries::release)
        }),
        (Batch, || routes!(registries::claim_many, registries::list)),
        (Wait, || routes!(leases::acquire::acquire)),
        (Usual, || routes!(leases::release)),
        (Batch, || routes!(leases::acquire_many)),
        (Batch, || routes!(leases::release_many)),
        (Usual, || routes!(leases::look_up, leases::revoke::revoke)),
        (Usual, || routes!(leases::list)),
        (Usual, || routes!(targets::put, targets::one, targets::remove)),
        (Usual, || routes!(targets::list)),
        (Usual, || {
            routes!(
                sessions::attach,
                sessions::read::look_up,
                sessions::patch,
                sessions::delete
            )
        }),
        (Usual, || routes!(sessions::read::list)),
        (Usual, || routes!(sessions::detach)),
        (Batch, || routes!(sessions::attach_many)),
        (Batch, || routes!(sessions::detach_many)),
        (Usual, || routes!(sessions::read::stats)),
        (Usual, || routes!(sessions::read::orphans)),
        (Usual, || routes!(rosters::hot_store::show, rosters::hot_store::replace)),
        (Usual, || routes!(rosters::list)),
        (Usual, || routes!(rosters::settings, rosters::set)),
        (Usual, || {
            routes!(
                rosters::providers::put,
                rosters::reading::one,
                rosters::providers::remove
            )
        }),
        (Usual, || routes!(rosters::reading::list)),
        (Usual, || routes!(rosters::providers::online)),
        (Usual, || routes!(rosters::providers::offline)),
        (Usual, || routes!(rosters::providers::activate)),
        (Usual, || routes!(rosters::providers::deactivate)),
        (Heartbeat, || routes!(rosters::providers::heartbeat)),
        (Usual, || routes!(rosters::reading::available)),
        (Usual, || routes!(rosters::reading::availability)),
        (Usual, || routes!(rosters::reading::stats)),
        (Long, || routes!(rosters::log::log)),
        (Usual, || routes!(rosters::engagements::create)),
        (Usual, || {
            routes!(rosters::engagements::one, rosters::engagements::change)
        }),
        (Usual, || routes!(rosters::engagements::reserve)),
        (Long, || routes!(events::read)),
        (Long, || routes!(sweep::run)),
        (Usual, || routes!(settle::all)),
        (Usual, || routes!(settle::one)),
        (Usual, || routes!(groups::list)),
        (Usual, || routes!(groups::one)),
        (Usual, || routes!(status::now)),
        (Long, || routes!(status::doctor)),
        (Probe, || routes!(status::status)),
        (Probe, || routes!(health::live)),
        (Probe, || routes!(health::ready)),
        (Probe, || routes!(metrics::scrape)),
        (Probe, || routes!(openapi::serve)),
        (Probe, || routes!(root::page)),
    ];
    let empty = OpenApiRouter::with_openapi(openapi::head());
    routes.iter().fold(empty, |router, (class, route)| {
        router.routes(behind(app, *class, route()))
    })
}

/// Wraps a route in the middleware, including its answer to methods that it does not serve.
fn behind(app: &Arc<App>, class: Class, route: UtoipaMethodRouter<Arc<App>>) -> UtoipaMethodRouter<Arc<App>> {
    let (schemas, mut paths, methods) = route;
    let path = paths.paths.keys().next().cloned().unwrap_or_default();
    let mut rules = Rules::none();
    if let Some(item) = paths.paths.get_mut(&path) {
        rules = Rules::of(&path, item);
        openapi::guarded(item);
        parameters::complete(&path, item, class.is_beat());
    }
    if path == metrics::PATH && app.settings.public_metrics {
        rules = rules.opened();
    }
    let layer = guarded(app, class, &path, rules);
    (schemas, paths, methods.fallback(wrong_method).layer(layer))
}

/// The middleware for open paths outside the API.
fn middleware(app: &Arc<App>, class: Class, path: &str) -> MiddlewareLayer {
    guarded(app, class, path, Rules::none())
}

fn guarded(app: &Arc<App>, class: Class, path: &str, rules: Rules) -> MiddlewareLayer {
    let meters = RouteMeters::new(path);
    MiddlewareLayer {
        app: Arc::clone(app),
        class,
        route: Arc::new(Route { meters, rules }),
    }
}

async fn no_such_route(uri: Uri) -> Failure {
    let path: String = uri.path().chars().take(200).collect();
    Failure::new(
        Code::NoSuchRoute,
        format!("nothing is served at {path}; see /openapi.json"),
    )
}

async fn wrong_method(method: Method) -> Failure {
    let shown: String = method.as_str().chars().take(32).collect();
    Failure::new(
        Code::MethodNotAllowed,
        format!("{shown} is not served here; see the header Allow"),
    )
}
