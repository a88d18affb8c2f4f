//! `/`: a page for whoever opens the daemon in a browser.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use crate::reply::with_type;

const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>Tenure</title>
<h1>Tenure</h1>
<p>Who is alive, who owns what, and what must be cleaned up because its owner died.</p>
<ul>
<li><a href=\"v1/status\">Status</a>: loops, store, groups</li>
<li><a href=\"v1/groups\">Groups</a></li>
<li><a href=\"openapi.json\">OpenAPI</a></li>
<li><a href=\"metrics\">Metrics</a></li>
<li><a href=\"readyz\">Readiness</a></li>
</ul>
";

/// A page with links
#[utoipa::path(
    get, path = "/", tag = "daemon",
    responses((status = 200, description = "HTML", body = String, content_type = "text/html"))
)]
pub(crate) async fn page() -> Response {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = with_type(StatusCode::OK, PAGE.into(), html);
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response
        .headers_mut()
        .insert(HeaderName::from_static("content-security-policy"), policy);
    response
}
