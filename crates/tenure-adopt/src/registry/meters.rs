//! The metrics of the adopt daemon.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tenure::meters::{EVICTED, EVICTED_ENTRIES, MAX_EVICTED_SERIES};
use tenure_core::clock::Clock;
use tenure_core::id::MemberId;

use super::{Notice, PassReport};
use crate::text;

/// Entries scanned. Label: registry.
const SCANNED: &str = "tenure_adopt_entries_scanned_total";
/// The time of the last completed pass, or of the daemon's start. Label: registry. Alert on its age, compared with the
/// interval.
const LAST_SUCCESS: &str = "tenure_adopt_last_success_timestamp_seconds";
/// The interval between passes. Label: registry.
const INTERVAL: &str = "tenure_adopt_interval_seconds";
/// 1 while nothing is removed because the store's health broke. Label: registry.
const QUARANTINED: &str = "tenure_adopt_quarantined";
/// Breaks of the store's health during a pass. Labels: registry, reason.
const QUARANTINES: &str = "tenure_adopt_quarantines_total";
/// 1 while the brake is engaged. Label: registry.
const BRAKED: &str = "tenure_adopt_brake_engaged";
/// Owners in the hash. Label: registry.
const OWNERS: &str = "tenure_adopt_owners";
/// Owners whose heartbeat has no ttl. Label: registry.
const ENDLESS: &str = "tenure_adopt_owners_without_ttl";
/// Entries without an owner. Label: registry.
const SKIPPED: &str = "tenure_adopt_entries_skipped";
/// Entries that may have been removed without being counted. Label: registry.
const UNSURE: &str = "tenure_adopt_unsure_total";

/// The label `group` of the eviction metrics, which a daemon's own also have: an adopted hash has no group.
const GROUP: &str = "adopt";

/// Installs the metrics recorder of this process. `None` if there is one already.
pub(super) fn install() -> Option<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).ok()?;
    metrics::describe_counter!(EVICTED, "Entries removed because their owner is dead.");
    metrics::describe_counter!(EVICTED_ENTRIES, "The same, of all owners.");
    metrics::describe_gauge!(INTERVAL, metrics::Unit::Seconds, "How often a pass begins.");
    metrics::describe_counter!(SCANNED, "Entries of the hash that were scanned.");
    metrics::describe_gauge!(LAST_SUCCESS, metrics::Unit::Seconds, "When a pass last went through.");
    metrics::describe_gauge!(
        QUARANTINED,
        "1 while nothing is removed because the store's health broke."
    );
    metrics::describe_counter!(QUARANTINES, "Breaks of the store's health during a pass, by reason.");
    metrics::describe_gauge!(BRAKED, "1 while the brake is engaged.");
    metrics::describe_gauge!(OWNERS, "Owners that the hash names.");
    metrics::describe_gauge!(ENDLESS, "Owners whose heartbeat key has no ttl.");
    metrics::describe_gauge!(SKIPPED, "Entries whose value names no owner.");
    metrics::describe_counter!(UNSURE, "Entries that may have been removed without being counted.");
    Some(handle)
}

/// The meters of one hash.
#[derive(Clone)]
pub(super) struct Meters {
    registry: Arc<str>,
    clock: Arc<dyn Clock>,
    series: Arc<Mutex<BTreeSet<String>>>,
}

impl Meters {
    /// Registers the meters, so that they are exported before the first event.
    pub(super) fn new(registry: &str, interval: Duration, clock: Arc<dyn Clock>) -> Self {
        let meters = Self {
            registry: registry.into(),
            clock,
            series: Arc::default(),
        };
        for name in [QUARANTINED, BRAKED] {
            meters.gauge(name, 0);
        }
        for name in [SCANNED, UNSURE] {
            meters.count(name, 0);
        }
        meters.count_evicted(0);
        metrics::gauge!(INTERVAL, "registry" => meters.registry.to_string()).set(interval.as_secs_f64());
        meters.succeeded();
        meters
    }

    fn succeeded(&self) {
        self.gauge(LAST_SUCCESS, self.clock.wall_micros() / 1_000_000);
    }

    fn count_evicted(&self, entries: u64) {
        let labels = [("group", GROUP.to_owned()), ("registry", self.registry.to_string())];
        metrics::counter!(EVICTED_ENTRIES, &labels).increment(entries);
    }

    fn gauge(&self, name: &'static str, value: u64) {
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
        metrics::gauge!(name, "registry" => self.registry.to_string()).set(value as f64);
    }

    fn count(&self, name: &'static str, by: u64) {
        metrics::counter!(name, "registry" => self.registry.to_string()).increment(by);
    }

    /// Records an event of a pass.
    pub(super) fn note(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Scanned { entries, .. } => self.count(SCANNED, *entries),
            Notice::Evicted { owner, entries } => {
                let labels = [
                    ("group", GROUP.to_owned()),
                    ("registry", self.registry.to_string()),
                    ("owner", self.owner_label(owner)),
                ];
                metrics::counter!(EVICTED, &labels).increment(*entries);
                self.count_evicted(*entries);
            }
            Notice::Quarantined(broken) => {
                let labels = [
                    ("registry", self.registry.to_string()),
                    ("reason", broken.as_str().to_owned()),
                ];
                metrics::counter!(QUARANTINES, &labels).increment(1);
                self.gauge(QUARANTINED, 1);
            }
            Notice::Settled => self.gauge(QUARANTINED, 0),
            Notice::Braked(_) => self.gauge(BRAKED, 1),
            Notice::Unbraked(_) => self.gauge(BRAKED, 0),
            Notice::Unsure { entries } => self.count(UNSURE, *entries),
            _ => {}
        }
    }

    /// Records the end of a pass.
    pub(super) fn passed(&self, report: &PassReport) {
        self.gauge(OWNERS, report.owners);
        self.gauge(ENDLESS, report.endless);
        self.gauge(SKIPPED, report.skipped);
        if report.quarantined.is_none() {
            self.gauge(BRAKED, u64::from(report.braked.is_some()));
            self.succeeded();
        }
    }

    /// The host part of a generated id, or the id; `other` above the limit of series.
    fn owner_label(&self, owner: &[u8]) -> String {
        let shown = text(owner);
        let label = MemberId::new(&shown).map_or(shown.clone(), |member| member.host().to_owned());
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        bounded(&mut series, label)
    }
}

fn bounded(series: &mut BTreeSet<String>, label: String) -> String {
    if series.contains(&label) {
        return label;
    }
    if series.len() >= MAX_EVICTED_SERIES {
        return "other".to_owned();
    }
    series.insert(label.clone());
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_above_the_series_limit_share_one_label() {
        let mut series = BTreeSet::new();
        for n in 0..MAX_EVICTED_SERIES {
            assert_eq!(bounded(&mut series, format!("i-{n}")), format!("i-{n}"));
        }
        assert_eq!(bounded(&mut series, "one-more".to_owned()), "other");
        assert_eq!(
            bounded(&mut series, "i-7".to_owned()),
            "i-7",
            "a known owner keeps its series"
        );
    }
}
