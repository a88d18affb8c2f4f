//! What reconciles told: how many differences each found, of whichever process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tenure::meters::ROSTER_DIVERGENCE;

static FOUND: Mutex<BTreeMap<String, Vec<f64>>> = Mutex::new(BTreeMap::new());

/// Listens from now on.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert!(metrics::set_global_recorder(Ears).is_ok(), "nobody else listens"));
}

/// What was found since this was asked last, a number for each reconcile.
pub(crate) fn found(roster: &str) -> Vec<f64> {
    FOUND.lock().unwrap().remove(roster).unwrap_or_default()
}

/// How many reconciles were done since that.
pub(crate) fn count(roster: &str) -> usize {
    FOUND.lock().unwrap().get(roster).map_or(0, Vec::len)
}

struct Ears;

/// The gauge of one roster.
struct Divergence(String);

impl GaugeFn for Divergence {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        FOUND.lock().unwrap().entry(self.0.clone()).or_default().push(value);
    }
}

impl metrics::Recorder for Ears {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let roster = key.labels().find(|label| label.key() == "roster");
        match roster.filter(|_| key.name() == ROSTER_DIVERGENCE) {
            Some(roster) => Gauge::from_arc(Arc::new(Divergence(roster.value().to_owned()))),
            None => Gauge::noop(),
        }
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
