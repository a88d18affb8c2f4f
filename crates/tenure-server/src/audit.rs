//! The log of what operators do: one line for each, also for what was refused.
//!
//! Its target is `tenure::audit`, so that it can be kept when everything else is quiet
//! (`TENURE_LOG=warn,tenure::audit=info`) and sent elsewhere. It names the token and never shows it.

use std::borrow::Cow;

use axum::http::StatusCode;

use crate::auth::Peer;

/// The target of the lines.
const TARGET: &str = "tenure::audit";

/// What a handler adds to the line: what was asked for in the body. Also makes a line of what is one only at times.
#[derive(Debug, Clone)]
pub(crate) struct Operated(pub(crate) Cow<'static, str>);

/// What somebody asked for.
pub(crate) struct Act<'a> {
    /// The name of the token.
    pub(crate) who: Option<&'a str>,
    pub(crate) from: Option<&'a Peer>,
    pub(crate) method: &'static str,
    /// The pattern of the path.
    pub(crate) route: &'a str,
    /// The path itself, which names what it was done to.
    pub(crate) path: &'a str,
}

/// Writes a line.
pub(crate) fn write(act: &Act<'_>, status: StatusCode, details: Option<&Operated>) {
    let outcome = match status.as_u16() {
        ..400 => "done",
        401 | 403 | 429 => "refused",
        400..500 => "rejected",
        _ => "failed",
    };
    let who = act.who.unwrap_or("-");
    let from = act.from.map(|peer| tracing::field::display(peer.address));
    let certificate = act.from.and_then(|peer| peer.certificate.as_deref());
    let details = details.map(|details| &*details.0).filter(|details| !details.is_empty());
    let (method, route, path, status) = (act.method, act.route, act.path, status.as_u16());
    if outcome == "done" {
        tracing::info!(target: TARGET, who, from, certificate, method, route, path, details, status, outcome, "operated");
    } else {
        tracing::warn!(target: TARGET, who, from, certificate, method, route, path, details, status, outcome, "operated");
    }
}
