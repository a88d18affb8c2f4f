//! Traces by OpenTelemetry, with the feature `otel`.
//!
//! A program that exports traces installs its tracer provider and calls [`start`]. From then on a [`Traced`] store
//! records a span for each call, and the sweeps record one for each pass. Without [`start`], only the headers of the
//! HTTP client remain: inside a trace, its requests carry `traceparent` (by the program's own propagator), so that the
//! daemon's spans join that trace.
//!
//! Calls record no span of their own accord: only below a sampled one. Attributes are names and numbers; no labels,
//! session data, keys or messages.

mod callers;
mod stores;

use std::sync::OnceLock;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::propagation::Injector;
use opentelemetry::trace::{FutureExt, Status, TraceContextExt, Tracer, WithContext};
use opentelemetry::{Context, KeyValue};
use tenure_core::error::{Error, Outcome, Result};

pub(crate) use callers::{Caller, for_callers};
pub use stores::Traced;

use crate::wire::Code;

static TRACER: OnceLock<BoxedTracer> = OnceLock::new();

/// Records spans with the tracer provider that is installed in this process
/// ([`set_tracer_provider`](opentelemetry::global::set_tracer_provider)). Only the first call has an effect.
pub fn start() {
    TRACER.get_or_init(|| global::tracer("tenure"));
}

/// The tracer, after [`start`].
#[must_use]
pub fn tracer() -> Option<&'static BoxedTracer> {
    TRACER.get()
}

/// Takes the current trace along into a task that is about to be spawned.
pub fn here<F: Future>(work: F) -> WithContext<F> {
    work.with_current_context()
}

/// Runs one pass of a sweep as a trace of its own. `of` is what it sweeps, like `("tenure.group", "ingest")`.
pub(crate) async fn pass<T>(
    sweep: &'static str,
    of: (&'static str, &str),
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(tracer) = tracer() else { return work.await };
    let (key, name) = of;
    let span = tracer
        .span_builder(format!("sweep {sweep}"))
        .with_attributes([
            KeyValue::new("tenure.sweep", sweep),
            KeyValue::new(key, name.to_owned()),
        ])
        .start_with_context(tracer, &Context::new());
    let context = Context::new().with_span(span);
    let done = work.with_context(context.clone()).await;
    if let Err(error) = &done {
        fail(&context, error);
    }
    done
}

/// Marks the span of a context as failed.
fn fail(context: &Context, error: &Error) {
    let span = context.span();
    span.set_attribute(KeyValue::new("error.type", Code::of(error).as_str()));
    let outcome = match error.outcome() {
        Outcome::Unchanged => "unchanged",
        Outcome::Unknown => "unknown",
    };
    span.set_attribute(KeyValue::new("tenure.outcome", outcome));
    // The message may name keys; the log has it.
    span.set_status(Status::error(""));
}

/// The headers that name the current trace to another process.
#[cfg(feature = "http")]
pub(crate) fn headers() -> Vec<(String, String)> {
    struct Headers(Vec<(String, String)>);
    impl Injector for Headers {
        fn set(&mut self, key: &str, value: String) {
            self.0.push((key.to_owned(), value));
        }
    }
    let mut headers = Headers(Vec::new());
    if Context::map_current(|context| context.span().span_context().is_valid()) {
        global::get_text_map_propagator(|propagator| propagator.inject(&mut headers));
    }
    headers.0
}
