//! The span of a request, with the feature `otel`.
//!
//! An admitted request belongs to the trace that its `traceparent` names, and otherwise begins one. Beats and probes begin none:
//! they are most of the traffic and all alike. A refused request has no span, so that no stranger fills the queue.

use axum::extract::Request;
use axum::http::HeaderMap;
use futures_util::future::Either;
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{FutureExt, Span, SpanKind, Status, TraceContextExt, Tracer, WithContext};
use opentelemetry::{Context, KeyValue, global};
use tenure::trace::tracer;

pub(crate) use tenure::trace::here;

use crate::middleware::Class;
use crate::refusals::group_in;

/// The longest `tracestate` that is taken up: every vendor must be able to pass this much on.
const MAX_STATE: usize = 512;

/// The span of one request, if it is recorded.
pub(crate) struct RequestSpan(Option<Context>);

impl RequestSpan {
    /// No span.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Begins the span of an admitted request.
    pub(crate) fn begin(class: Class, method: &'static str, route: &str, request: &Request) -> Self {
        let Some(tracer) = tracer() else { return Self(None) };
        let parent = global::get_text_map_propagator(|propagator| {
            propagator.extract_with_context(&Context::new(), &Headers(request.headers()))
        });
        let is_wanted = {
            let span = parent.span();
            let caller = span.span_context();
            if caller.is_valid() {
                caller.is_sampled()
            } else {
                !class.is_beat() && class != Class::Probe
            }
        };
        if !is_wanted {
            return Self(None);
        }
        let mut attributes = vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route.to_owned()),
        ];
        if let Some(group) = group_in(request.uri().path()) {
            attributes.push(KeyValue::new("tenure.group", group.to_string()));
        }
        let span = tracer
            .span_builder(format!("{method} {route}"))
            .with_kind(SpanKind::Server)
            .with_attributes(attributes)
            .start_with_context(tracer, &parent);
        Self(span.is_recording().then(|| parent.with_span(span)))
    }

    /// Runs the work of the request within its span.
    pub(crate) fn around<F: Future>(&self, work: F) -> Either<F, WithContext<F>> {
        match &self.0 {
            None => Either::Left(work),
            Some(context) => Either::Right(work.with_context(context.clone())),
        }
    }

    /// Ends the span with the status of the answer.
    pub(crate) fn answered(mut self, status: u16) {
        let Some(context) = self.0.take() else { return };
        let span = context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if status >= 500 {
            span.set_attribute(KeyValue::new("error.type", status.to_string()));
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        // The client left, or the daemon stopped, before there was an answer.
        if let Some(context) = self.0.take() {
            let span = context.span();
            span.set_attribute(KeyValue::new("error.type", "cancelled"));
            span.end();
        }
    }
}

/// The headers that name the caller's trace.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.to_str().ok()?;
        (value.len() <= MAX_STATE).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
