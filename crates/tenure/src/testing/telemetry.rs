//! Records the metrics and log lines of the current thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber, span};

/// Everything recorded so far, by name. Metric names include their labels, as `name{a="b"}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telemetry {
    counters: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Telemetry {
    /// The sum of all series of a counter, or the number of samples of a histogram.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let named = counters.iter().filter(|(key, _)| key.starts_with(name));
        named.map(|(_, counter)| counter.load(Ordering::Relaxed)).sum()
    }

    /// The last value of a gauge.
    pub(crate) fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }

    /// The number of log lines that contain a text.
    pub(crate) fn lines(&self, text: &str) -> usize {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).count()
    }

    /// Records on this thread while the guards live.
    pub(crate) fn listen(&self) -> (metrics::LocalRecorderGuard<'_>, tracing::subscriber::DefaultGuard) {
        (
            metrics::set_default_local_recorder(self),
            tracing::subscriber::set_default(self.clone()),
        )
    }

    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={:?}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::new(Metric(Arc::clone(counters.entry(name).or_default())))
    }
}

struct Metric(Arc<AtomicU64>);

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, more: f64) {
        let add = |bits| Some((f64::from_bits(bits) + more).to_bits());
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok();
    }
    fn decrement(&self, less: f64) {
        GaugeFn::increment(self, -less);
    }
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl HistogramFn for Metric {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl metrics::Recorder for Telemetry {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(line) = self;
        *line = match field.name() {
            "message" => format!("{value:?} {line}"),
            name => format!("{line}{name}={value:?} "),
        };
    }
}

impl Subscriber for Telemetry {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(String::new());
        event.record(&mut line);
        let level = event.metadata().level();
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("{level} {}", line.0));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
