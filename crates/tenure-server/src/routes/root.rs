//! `/`: the dashboard, and the files it is made of.

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::response::Response;
use tenure::wire::Code;

use crate::dashboard;
use crate::reply::{Answer, Failure};

/// Where the files of the page are. Not a part of the API, hence not of its description.
pub(crate) const FILES: &str = "/dashboard/{file}";

/// The dashboard
///
/// A page for people. It holds no data and is open to everyone; what it shows it reads from the other routes.
#[utoipa::path(
    get, path = "/", tag = "daemon",
    security(()),
    responses((status = 200, description = "HTML", body = String, content_type = "text/html"))
)]
pub(crate) async fn page(headers: HeaderMap) -> Answer {
    find("index.html", &headers)
}

/// A script, the style or the mark of the page.
pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Answer {
    find(&name, &headers)
}

fn find(name: &str, headers: &HeaderMap) -> Result<Response, Failure> {
    dashboard::file(name, headers).ok_or_else(|| {
        let shown: String = name.chars().take(60).collect();
        Failure::new(Code::NoSuchRoute, format!("the dashboard has no file {shown:?}"))
    })
}
