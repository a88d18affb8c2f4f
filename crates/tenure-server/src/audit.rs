//! The audit log: one line per operator action, including refused requests and those whose client disconnected.
//!
//! Its target is `tenure::audit`, so that it can be filtered (`TENURE_LOG=warn,tenure::audit=info`) and routed on its own.
//! It logs the token's name, never the token.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use tenure::wire::EndQuery;

use crate::app::App;
use crate::auth::{Peer, Rule};
use crate::middleware::Route;

const TARGET: &str = "tenure::audit";

/// Details of an operation from its body. The handler sets them before it acts, so that the line has them even when the
/// client disconnects.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditDetails(Arc<OnceLock<Cow<'static, str>>>);

impl AuditDetails {
    /// The first value wins.
    pub(crate) fn set(&self, what: impl Into<Cow<'static, str>>) {
        drop(self.0.set(what.into()));
    }
}

impl FromRequestParts<Arc<App>> for AuditDetails {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// The audit line of one request until it is written. Dropping it writes it, too: the operation of a client that disconnected
/// is logged without a status.
pub(crate) struct AuditEntry {
    app: Arc<App>,
    route: Arc<Route>,
    /// The name of the token.
    who: Option<String>,
    from: Option<Peer>,
    method: &'static str,
    /// The raw path, which names the object of the operation.
    path: String,
    details: AuditDetails,
    written: bool,
}

impl AuditEntry {
    /// Starts the entry of a request that is an operation, and gives the handler its [`AuditDetails`].
    pub(crate) fn of(
        app: &Arc<App>,
        route: &Arc<Route>,
        rule: &Rule,
        method: &'static str,
        request: &mut Request,
    ) -> Option<Self> {
        if !rule.may_be_operation() {
            return None;
        }
        let details = AuditDetails::default();
        if !rule.is_operation() {
            // From the query, so that it is logged even when the request is refused.
            expels(request.uri()).then(|| details.set("expel"))?;
        }
        request.extensions_mut().insert(details.clone());
        Some(Self {
            app: Arc::clone(app),
            route: Arc::clone(route),
            who: None,
            from: request.extensions().get::<Peer>().cloned(),
            method,
            path: request.uri().path().to_owned(),
            details,
            written: false,
        })
    }

    /// Sets the name of the token.
    pub(crate) fn set_caller(&mut self, who: Option<&str>) {
        self.who = who.map(str::to_owned);
    }

    /// Writes the line with the status of the answer.
    pub(crate) fn finish(mut self, status: StatusCode) {
        self.written = true;
        let outcome = match status.as_u16() {
            ..400 => "done",
            401 | 403 | 421 | 429 => "refused",
            400..500 => "rejected",
            _ => "failed",
        };
        self.write(outcome, Some(status.as_u16()));
    }

    fn write(&self, outcome: &str, status: Option<u16>) {
        let who = self.who.as_deref().unwrap_or("-");
        let from = self.from.as_ref().map(|peer| tracing::field::display(peer.address));
        let certificate = self.from.as_ref().and_then(|peer| peer.certificate.as_deref());
        let details = self.details.0.get().map(|details| &**details);
        let details = details.filter(|details| !details.is_empty());
        let (method, route, path) = (self.method, self.route.meters.route(), &*self.path);
        if outcome == "done" {
            tracing::info!(target: TARGET, who, from, certificate, method, route, path, details, status, outcome, "operated");
        } else {
            tracing::warn!(target: TARGET, who, from, certificate, method, route, path, details, status, outcome, "operated");
        }
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if self.written {
            return;
        }
        let outcome = if self.app.draining.is_cancelled() {
            "unknown (cut while shutting down)"
        } else {
            "unknown (caller left)"
        };
        self.write(outcome, None);
    }
}

/// Whether the query asks to expel. Parsed exactly as the handler parses it.
fn expels(uri: &Uri) -> bool {
    Query::<EndQuery>::try_from_uri(uri).is_ok_and(|Query(query)| query.expel)
}
