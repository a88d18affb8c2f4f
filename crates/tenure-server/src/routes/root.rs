//! `/`: the dashboard and its files.

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::response::Response;
use tenure::wire::Code;

use crate::dashboard;
use crate::reply::{Failure, RouteResult};

/// The path of the files, which are not part of the API and its description.
pub(crate) const FILES: &str = "/dashboard/{file}";

/// Open the dashboard
///
/// A page for people. It contains no data, so it needs no token; it reads the other routes.
#[utoipa::path(
    get, path = "/", tag = "daemon",
    security(()),
    responses((status = 200, description = "HTML", body = String, content_type = "text/html"))
)]
pub(crate) async fn page(headers: HeaderMap) -> RouteResult {
    find("index.html", &headers)
}

/// A script, style or image of the page.
pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> RouteResult {
    find(&name, &headers)
}

fn find(name: &str, headers: &HeaderMap) -> Result<Response, Failure> {
    dashboard::file(name, headers).ok_or_else(|| {
        let shown: String = name.chars().take(60).collect();
        Failure::new(Code::NoSuchRoute, format!("the dashboard has no file {shown:?}"))
    })
}
