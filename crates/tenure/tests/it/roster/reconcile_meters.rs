//! Records the metrics of reconciles: how many ran, and how many differences each found, in any process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tenure::meters::{ROSTER_DIVERGENCE, ROSTER_RECONCILES};

static FINDINGS: Mutex<BTreeMap<String, Findings>> = Mutex::new(BTreeMap::new());

/// The metrics of one roster.
#[derive(Default)]
struct Findings {
    reconciles: u64,
    found: Vec<f64>,
}

/// Installs the recorder.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(
            metrics::set_global_recorder(Recorder).is_ok(),
            "there is no other recorder"
        )
    });
}

/// The differences found since the last call. A process whose count has expired contributes 0.
pub(crate) fn found(roster: &str) -> Vec<f64> {
    FINDINGS.lock().unwrap().remove(roster).unwrap_or_default().found
}

/// The number of reconciles since then.
pub(crate) fn count(roster: &str) -> u64 {
    FINDINGS
        .lock()
        .unwrap()
        .get(roster)
        .map_or(0, |findings| findings.reconciles)
}

struct Recorder;

/// A metric of one roster.
struct RosterMeter(String);

impl RosterMeter {
    fn of(key: &Key) -> Option<Arc<Self>> {
        let roster = key.labels().find(|label| label.key() == "roster")?;
        Some(Arc::new(Self(roster.value().to_owned())))
    }

    fn record(&self, update: impl FnOnce(&mut Findings)) {
        update(FINDINGS.lock().unwrap().entry(self.0.clone()).or_default());
    }
}

impl GaugeFn for RosterMeter {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.record(|findings| findings.found.push(value));
    }
}

impl CounterFn for RosterMeter {
    fn increment(&self, by: u64) {
        self.record(|findings| findings.reconciles += by);
    }
    fn absolute(&self, _: u64) {}
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let ear = RosterMeter::of(key).filter(|_| key.name() == ROSTER_RECONCILES);
        ear.map_or_else(Counter::noop, Counter::from_arc)
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let ear = RosterMeter::of(key).filter(|_| key.name() == ROSTER_DIVERGENCE);
        ear.map_or_else(Gauge::noop, Gauge::from_arc)
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
