//! The dashboard: static files embedded in the binary.
//!
//! They are hand-written, need no build and load nothing from other hosts. They contain no data: the page reads the routes
//! of `/v1` like any other client, with a token if one is required. So the files themselves are open.
//!
//! Browsers cache them and revalidate each time (`no-cache` with an `ETag`), so that no old script talks to an upgraded
//! daemon.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use ring::digest::{SHA256, digest};

/// Scripts and styles from this origin only, none inline; no framing, no requests to other origins, and no string becomes
/// markup (trusted types without a policy).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal $kind:ident,)*) => {
        &[$(File { name: $name, kind: $kind, bytes: include_bytes!(concat!("dashboard/", $name)) },)*]
    };
}

const FILES: &[File] = files! {
    "index.html" HTML,
    "style.css" CSS,
    "mark.svg" SVG,
    "main.js" SCRIPT,
    "api.js" SCRIPT,
    "stream.js" SCRIPT,
    "world.js" SCRIPT,
    "dom.js" SCRIPT,
    "list.js" SCRIPT,
    "walk.js" SCRIPT,
    "story.js" SCRIPT,
    "banners.js" SCRIPT,
    "search.js" SCRIPT,
    "overview.js" SCRIPT,
    "group.js" SCRIPT,
    "members.js" SCRIPT,
    "timeline.js" SCRIPT,
    "bursts.js" SCRIPT,
    "ends.js" SCRIPT,
    "acts.js" SCRIPT,
    "leases.js" SCRIPT,
    "sessions.js" SCRIPT,
    "registries.js" SCRIPT,
    "roster.js" SCRIPT,
    "why.js" SCRIPT,
};

/// The `ETag` of each file, a prefix of its hash. In the order of [`FILES`].
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| FILES.iter().map(|file| tag(file.bytes)).collect());

fn tag(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let hex: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// A file of the page; `None` if there is none of this name. 304 without a body when the browser's copy is current. O(1)
/// after the first call, which hashes all files.
pub(crate) fn file(name: &str, headers: &HeaderMap) -> Option<Response> {
    let at = FILES.iter().position(|file| file.name == name)?;
    let (file, tag) = (FILES.get(at)?, TAGS.get(at)?);
    let known = has(headers, tag);
    let body = if known {
        Body::empty()
    } else {
        Body::from(Bytes::from_static(file.bytes))
    };
    let mut response = Response::new(body);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let all = response.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    all.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    all.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    all.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    all.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    if let Ok(tag) = HeaderValue::from_str(tag) {
        all.insert(ETAG, tag);
    }
    Some(response)
}

/// Whether `If-None-Match` contains the tag (RFC 9110, 13.1.2; weak comparison).
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','));
    tags.any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

#[cfg(test)]
mod tests;
