//! A batch in the traces of its callers: it belongs to the first one that is sampled, and is linked to the others.

use opentelemetry::Context;
use opentelemetry::trace::{FutureExt, Link, SpanContext, TraceContextExt, WithContext};

/// The most links of a batch.
const MAX_LINKS: usize = 32;

/// One of the callers whose items a batch carries.
pub(crate) struct Caller(Option<SpanContext>);

/// The other callers of a batch, in the context of its call.
pub(super) struct Links(pub(super) Vec<Link>);

impl Caller {
    /// The caller that runs now.
    pub(crate) fn current() -> Self {
        Self(Context::map_current(|context| {
            let span = context.span();
            let caller = span.span_context();
            caller.is_sampled().then(|| caller.clone())
        }))
    }
}

/// Runs a batch on behalf of its callers.
pub(crate) fn for_callers<'a, F: Future>(callers: impl Iterator<Item = &'a Caller>, work: F) -> WithContext<F> {
    let mut sampled = callers.filter_map(|Caller(caller)| caller.clone());
    let context = match sampled.next() {
        None => Context::new(),
        Some(first) => {
            let links = sampled.take(MAX_LINKS).map(|other| Link::new(other, Vec::new(), 0));
            let links = Links(links.collect());
            Context::new().with_remote_span_context(first).with_value(links)
        }
    };
    work.with_context(context)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceFlags, TraceId, TraceState};

    use super::*;

    fn caller(id: u64, flags: TraceFlags) -> SpanContext {
        SpanContext::new(
            TraceId::from(u128::from(id)),
            SpanId::from(id),
            flags,
            false,
            TraceState::NONE,
        )
    }

    async fn captured(span: SpanContext) -> Caller {
        let context = Context::new().with_remote_span_context(span);
        async { Caller::current() }.with_context(context).await
    }

    #[tokio::test]
    async fn batch_belongs_to_one_sampled_caller_and_links_the_others() {
        let mut callers = vec![Caller::current(), captured(caller(1, TraceFlags::NOT_SAMPLED)).await];
        for id in 2..=50 {
            callers.push(captured(caller(id, TraceFlags::SAMPLED)).await);
        }
        let seen = for_callers(callers.iter(), async {
            Context::map_current(|context| {
                let links = &context.get::<Links>().unwrap().0;
                let linked: Vec<_> = links.iter().map(|link| link.span_context.span_id()).collect();
                (context.span().span_context().span_id(), linked)
            })
        });
        let (parent, linked) = seen.await;
        assert_eq!(parent, SpanId::from(2));
        let expected: Vec<_> = (3..).map(SpanId::from).take(MAX_LINKS).collect();
        assert_eq!(linked, expected);
    }

    #[tokio::test]
    async fn batch_without_sampled_callers_belongs_to_no_trace() {
        let callers = [captured(caller(1, TraceFlags::NOT_SAMPLED)).await, Caller::current()];
        let work = for_callers(callers.iter(), async {
            Context::map_current(|context| context.span().span_context().is_valid())
        });
        // Also when the task that sends it happens to be in a trace.
        let outer = Context::new().with_remote_span_context(caller(9, TraceFlags::SAMPLED));
        assert!(!work.with_context(outer).await);
    }
}
