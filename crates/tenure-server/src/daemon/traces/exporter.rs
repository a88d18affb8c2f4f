//! The export of traces by OTLP.
//!
//! Ended spans wait in a bounded queue; one task sends them in batches. A span that finds the queue full is dropped and
//! counted, so neither a slow collector nor one that hangs delays a request. A batch that the collector does not take is dropped
//! and counted, too: retries would only make the queue longer.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{Context, Key, KeyValue, global};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor};
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Store;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::TraceSettings;
use crate::meters;

/// How many ended spans may wait.
const QUEUE: usize = 2_048;
/// The most spans in a request to the collector.
const BATCH: usize = 512;
/// How long spans wait for others.
const LINGER: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The traces of this process.
pub(in crate::daemon) struct Traces {
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    sending: JoinHandle<()>,
}

impl Traces {
    /// Begins to record and send traces.
    ///
    /// # Errors
    /// `Misconfigured` for settings that cannot be used. A collector that is away is no error.
    pub(in crate::daemon) fn start(settings: &TraceSettings, clock: &Arc<dyn Clock>) -> Result<Self> {
        // Before the first metric handle, as in a server.
        meters::recorder();
        meters::begin_spans();
        let url = settings.url(true)?;
        let resource = resource();
        let mut exporter = exporter(&url)?;
        exporter.set_resource(&resource);
        let (queue, spans) = mpsc::channel(QUEUE);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                settings.sample,
            ))))
            .with_resource(resource)
            .with_span_processor(Queue(queue))
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        global::set_tracer_provider(provider);
        tenure::trace::start();
        tracing::info!(endpoint = url, sample = settings.sample, "sending traces");
        let stop = CancellationToken::new();
        let sender = Sender {
            exporter,
            spans,
            clock: Arc::clone(clock),
            stop: stop.clone(),
            is_failing: false,
        };
        Ok(Self {
            clock: Arc::clone(clock),
            stop,
            sending: tokio::spawn(sender.run()),
        })
    }

    /// The store with a span for each of its calls.
    pub(in crate::daemon) fn of_calls(store: Arc<dyn Store>) -> Arc<dyn Store> {
        tenure::trace::Traced::new(store)
    }

    /// Sends what is left, for at most this long.
    pub(in crate::daemon) async fn finish(self, patience: Duration) {
        self.stop.cancel();
        let sending = self.sending;
        let abort = sending.abort_handle();
        if within(&*self.clock, patience, sending).await.is_none() {
            abort.abort();
            tracing::warn!("the last traces were not sent: the collector did not take them in time");
        }
    }
}

/// The end of a span puts it into the queue.
#[derive(Debug)]
struct Queue(mpsc::Sender<SpanData>);

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.0.try_send(span).is_err() {
            meters::spans("dropped", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task that sends the queue.
struct Sender {
    exporter: SpanExporter,
    spans: Receiver<SpanData>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    is_failing: bool,
}

impl Sender {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.gather(&mut batch).await {
            self.send(std::mem::take(&mut batch)).await;
        }
    }

    /// Waits for spans, and then for more of them. `false` when the queue is closed and empty.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) -> bool {
        if !self.more(batch).await {
            return false;
        }
        let clock = Arc::clone(&self.clock);
        let mut linger = clock.sleep(LINGER);
        while batch.len() < BATCH {
            tokio::select! {
                biased;
                more = self.more(batch) => if !more { break },
                () = &mut linger => break,
            }
        }
        true
    }

    /// Waits for spans. `false` when the queue is closed and empty.
    async fn more(&mut self, batch: &mut Vec<SpanData>) -> bool {
        let room = BATCH - batch.len();
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if !self.spans.is_closed() => self.spans.close(),
            got = self.spans.recv_many(batch, room) => return got > 0,
        }
        self.spans.recv_many(batch, room).await > 0
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let sent = within(&*self.clock, TIMEOUT, self.exporter.export(batch)).await;
        let error = match sent {
            Some(Ok(())) => {
                meters::spans("exported", count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes traces again");
                }
                return;
            }
            Some(Err(error)) => error.to_string(),
            None => "it did not answer in time".to_owned(),
        };
        meters::spans("failed", count);
        // One line for each outage.
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                error,
                "the collector does not take traces; they are dropped and counted"
            );
        }
    }
}

/// What sends to a collector.
fn exporter(url: &str) -> Result<SpanExporter> {
    let bad = |error: String| Error::new(ErrorKind::Misconfigured, format!("traces cannot be sent: {error}"));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client(url).map_err(bad)?)
        .with_endpoint(url)
        .with_protocol(Protocol::HttpBinary)
        .with_retry_policy(RetryPolicy::disabled());
    exporter.build().map_err(|error| bad(error.to_string()))
}

/// An HTTP client that trusts the authorities of the machine.
fn client(url: &str) -> std::result::Result<reqwest::Client, String> {
    let is_secure = url.starts_with("https:");
    let tls = match is_secure {
        true => tenure_tls::ClientTls::default().config(),
        false => tenure_tls::without_roots(),
    };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.map_err(|error| error.to_string())?)
        .https_only(is_secure)
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
    client.build().map_err(|error| error.to_string())
}

/// What the spans are of: the attributes of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, which is `tenure` unless set.
fn resource() -> Resource {
    let given = Resource::builder().build();
    let name = given.get(&Key::from_static_str("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let mut resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !is_named {
        resource = resource.with_service_name("tenure");
    }
    resource.build()
}
