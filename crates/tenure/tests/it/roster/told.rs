//! What reconciles told: how many differences each found, of whichever process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tenure::meters::{ROSTER_DIVERGENCE, ROSTER_RECONCILES};

static TOLD: Mutex<BTreeMap<String, Told>> = Mutex::new(BTreeMap::new());

/// Of one roster.
#[derive(Default)]
struct Told {
    reconciles: u64,
    found: Vec<f64>,
}

/// Listens from now on.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert!(metrics::set_global_recorder(Ears).is_ok(), "nobody else listens"));
}

/// What was found since this was asked last; a process whose finding is old news says 0, too.
pub(crate) fn found(roster: &str) -> Vec<f64> {
    TOLD.lock().unwrap().remove(roster).unwrap_or_default().found
}

/// How many reconciles were done since that.
pub(crate) fn count(roster: &str) -> u64 {
    TOLD.lock().unwrap().get(roster).map_or(0, |told| told.reconciles)
}

struct Ears;

/// The meters of one roster.
struct Ear(String);

impl Ear {
    fn of(key: &Key) -> Option<Arc<Self>> {
        let roster = key.labels().find(|label| label.key() == "roster")?;
        Some(Arc::new(Self(roster.value().to_owned())))
    }

    fn hear(&self, note: impl FnOnce(&mut Told)) {
        note(TOLD.lock().unwrap().entry(self.0.clone()).or_default());
    }
}

impl GaugeFn for Ear {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.hear(|told| told.found.push(value));
    }
}

impl CounterFn for Ear {
    fn increment(&self, by: u64) {
        self.hear(|told| told.reconciles += by);
    }
    fn absolute(&self, _: u64) {}
}

impl metrics::Recorder for Ears {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let ear = Ear::of(key).filter(|_| key.name() == ROSTER_RECONCILES);
        ear.map_or_else(Counter::noop, Counter::from_arc)
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let ear = Ear::of(key).filter(|_| key.name() == ROSTER_DIVERGENCE);
        ear.map_or_else(Gauge::noop, Gauge::from_arc)
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
