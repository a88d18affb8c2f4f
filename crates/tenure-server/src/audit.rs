//! The log of what operators do: one line for each, also for what was refused, and for what nobody waited for.
//!
//! Its target is `tenure::audit`, so that it can be kept when everything else is quiet
//! (`TENURE_LOG=warn,tenure::audit=info`) and sent elsewhere. It names the token and never shows it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use tenure::wire::EndQuery;

use crate::app::App;
use crate::auth::{Peer, Rule};
use crate::front::Route;

/// The target of the lines.
const TARGET: &str = "tenure::audit";

/// Where a handler notes what was asked for in the body, before it begins with it: the line says so as well when nobody
/// waits for the answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operated(Arc<OnceLock<Cow<'static, str>>>);

impl Operated {
    /// The first note counts.
    pub(crate) fn note(&self, what: impl Into<Cow<'static, str>>) {
        drop(self.0.set(what.into()));
    }
}

impl FromRequestParts<Arc<App>> for Operated {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// What is kept of an operation until its line is written. Dropping it writes the line as well: whoever hangs up takes the
/// answer with them, and not what was done.
pub(crate) struct Witness {
    app: Arc<App>,
    route: Arc<Route>,
    /// The name of the token.
    who: Option<String>,
    from: Option<Peer>,
    method: &'static str,
    /// The path itself, which names what it was done to.
    path: String,
    details: Operated,
    told: bool,
}

impl Witness {
    /// Of a request that is an operation; hands the handler its [`Operated`].
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
        let details = Operated::default();
        if !rule.is_operation() {
            // Known from the query, so that it is known whatever becomes of the request.
            expels(request.uri()).then(|| details.note("expel"))?;
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
            told: false,
        })
    }

    /// It is known whose token it was.
    pub(crate) fn saw(&mut self, who: Option<&str>) {
        self.who = who.map(str::to_owned);
    }

    /// Writes the line: it was answered.
    pub(crate) fn tell(mut self, status: StatusCode) {
        self.told = true;
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

impl Drop for Witness {
    fn drop(&mut self) {
        if self.told {
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

/// Whether the query makes an operation of the end of a tenure, read as the handler reads it.
fn expels(uri: &Uri) -> bool {
    Query::<EndQuery>::try_from_uri(uri).is_ok_and(|Query(query)| query.expel)
}
