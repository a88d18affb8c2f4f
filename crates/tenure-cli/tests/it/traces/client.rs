//! A Rust program within a trace that calls a daemon.

use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{FutureExt, SpanContext, TraceContextExt, TraceFlags, TraceState};
use opentelemetry::{Context, SpanId, TraceId, global};
use tenure::Tenure;

use super::collector::{Collector, Manners};
use super::{PARENT, TRACE, hex, is_in, traced};

/// The propagator of that program.
#[derive(Debug)]
struct Propagator;

impl TextMapPropagator for Propagator {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let span = context.span();
        let (trace, span) = (span.span_context().trace_id(), span.span_context().span_id());
        injector.set("traceparent", format!("00-{trace}-{span}-01"));
    }
    fn extract_with_context(&self, context: &Context, _: &dyn Extractor) -> Context {
        context.clone()
    }
    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&[])
    }
}

#[tokio::test]
async fn client_hands_its_trace_to_the_daemon() {
    global::set_text_map_propagator(Propagator);
    let collector = Collector::start(Manners::Takes);
    let daemon = traced(&collector.url(), |command| {
        command.args(["--otlp-sample", "0"]);
    });
    let caller = SpanContext::new(
        TraceId::from_hex(TRACE).unwrap(),
        SpanId::from_hex(PARENT).unwrap(),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    );
    let context = Context::new().with_remote_span_context(caller);
    let tenure = Tenure::connect(&daemon.url()).await.unwrap();
    let look = tenure.group("ingest").unwrap();
    look.member("m1").with_context(context).await.unwrap();
    let name = "GET /v1/groups/{g}/members/{m}";
    let request = collector.span("the request", |span| span.name == name);
    assert!(is_in(&request, TRACE));
    assert_eq!(hex(&request.parent_span_id), PARENT);
    tenure.close().await;
}
