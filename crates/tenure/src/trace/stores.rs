//! A store that records a span for each call.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{FutureExt, Span, SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use tenure_core::call::{Reply, StoreRequest};
use tenure_core::error::Result;
use tenure_core::store::Store;
use tenure_core::store::middleware::Middleware;

use super::callers::Links;
use super::{fail, tracer};

/// Records a span for each call of a store that is made within a sampled trace.
pub struct Traced {
    store: Arc<dyn Store>,
    place: String,
}

impl std::fmt::Debug for Traced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traced({})", self.place)
    }
}

impl Traced {
    /// The store with spans around its calls.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let place = store.place();
        Arc::new(Self { store, place })
    }

    /// The context of a call that is to be recorded.
    fn begin(&self, request: &StoreRequest) -> Option<Context> {
        let tracer = tracer()?;
        let parent = Context::current();
        if !parent.span().span_context().is_sampled() {
            return None;
        }
        let mut attributes = vec![
            KeyValue::new("tenure.call", request.op.verb().to_string()),
            KeyValue::new("tenure.store", self.place.clone()),
        ];
        if let Some(group) = &request.group {
            attributes.push(KeyValue::new("tenure.group", group.to_string()));
        }
        if let items @ 1.. = request.op.items() {
            attributes.push(KeyValue::new("tenure.items", i64::try_from(items).unwrap_or(i64::MAX)));
        }
        let links = parent.get::<Links>().map(|Links(links)| links.clone());
        let span = tracer
            .span_builder(request.op.verb().to_string())
            .with_kind(SpanKind::Client)
            .with_attributes(attributes)
            .with_links(links.unwrap_or_default())
            .start_with_context(tracer, &parent);
        span.is_recording().then(|| parent.with_span(span))
    }
}

impl Middleware for Traced {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn handle(&self, request: StoreRequest) -> Result<Reply> {
        let Some(context) = self.begin(&request) else {
            return self.store.call(request).await;
        };
        let done = self.store.call(request).with_context(context.clone()).await;
        if let Err(error) = &done {
            fail(&context, error);
        }
        done
    }

    fn answers_within(&self) -> Option<Duration> {
        self.store.answers_within()
    }
}
