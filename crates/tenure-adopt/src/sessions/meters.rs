//! The metrics of `tenure adopt sessions --interval`.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tenure_core::clock::Clock;

use super::{IndexReport, ReapNotice, ReapReport};
use crate::health::Break;

/// The store's time for one pass of the reaper. Label: sessions.
const CLEANUP: &str = "tenure_orphan_cleanup_duration_seconds";
/// Reaped sessions. Label: sessions.
const DELETED: &str = "tenure_orphan_sessions_deleted_total";
/// Keys scanned, by index passes only. Label: sessions.
const SCANNED: &str = "tenure_orphan_cleanup_keys_scanned_total";
/// The time of the last completed pass, or of the daemon's start. Labels: sessions, pass (reap or index). Alert on its
/// age, compared with the interval.
const LAST_SUCCESS: &str = "tenure_adopt_sessions_last_success_timestamp_seconds";
/// The interval between passes. Labels: sessions, pass.
const INTERVAL: &str = "tenure_adopt_sessions_interval_seconds";
/// How long the oldest remaining entry is overdue after the last pass of the reaper; 0 if none is. Label: sessions.
const OVERDUE: &str = "tenure_adopt_sessions_oldest_overdue_seconds";
/// Entries that the last index pass had to change. Label: sessions.
const DRIFT: &str = "tenure_adopt_sessions_drift";
/// 1 while nothing is reaped because the store's health broke. Label: sessions.
const QUARANTINED: &str = "tenure_adopt_sessions_quarantined";
/// Old entries whose session was kept in the last pass. Labels: sessions, why.
const KEPT: &str = "tenure_adopt_sessions_kept";
/// Sessions that may have been reaped without being counted. Label: sessions.
const UNSURE: &str = "tenure_adopt_sessions_unsure_total";
/// Entries changed by index passes. Labels: sessions, how.
const INDEXED: &str = "tenure_adopt_sessions_indexed_total";
/// Entries of the index at the last count. Label: sessions.
const ENTRIES: &str = "tenure_adopt_sessions_index_entries";

/// Entries with a time more than a day ahead, whose sessions are never reaped. Label: sessions.
const NEVER_DUE: &str = "tenure_adopt_sessions_index_never_due";
/// Sessions reaped without a reference count, although count keys are configured. Label: sessions.
const UNCOUNTED: &str = "tenure_adopt_sessions_uncounted_total";
/// Keys of the pattern at the last count of an index pass. Label: sessions.
const KEYS: &str = "tenure_adopt_sessions_keys";
/// The kinds of passes.
pub(super) const REAP: &str = "reap";
pub(super) const INDEX: &str = "index";

const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Installs the metrics recorder of this process. `None` if there is one already.
pub(super) fn install() -> Option<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).ok()?;
    let seconds = metrics::Unit::Seconds;
    metrics::describe_histogram!(
        CLEANUP,
        seconds,
        "How long the store was at work for one pass of the reaper."
    );
    metrics::describe_counter!(DELETED, "Orphan sessions deleted.");
    metrics::describe_counter!(SCANNED, "Keys that were scanned.");
    metrics::describe_gauge!(INTERVAL, seconds, "How often a pass begins.");
    metrics::describe_gauge!(
        OVERDUE,
        seconds,
        "For how long the oldest entry is overdue that was left."
    );
    metrics::describe_gauge!(DRIFT, "Entries that the last pass of the index had to change.");
    metrics::describe_gauge!(LAST_SUCCESS, seconds, "When a pass last went through.");
    metrics::describe_gauge!(
        QUARANTINED,
        "1 while nothing is reaped because the store's health broke."
    );
    metrics::describe_gauge!(KEPT, "Old entries whose session is kept, by reason.");
    metrics::describe_counter!(UNSURE, "Sessions that may have been reaped without being counted.");
    metrics::describe_counter!(INDEXED, "Entries that a pass of the index changed.");
    metrics::describe_gauge!(ENTRIES, "Entries of the index.");
    metrics::describe_gauge!(
        NEVER_DUE,
        "Entries of the index whose time is more than a day ahead; their sessions are never reaped."
    );
    metrics::describe_counter!(
        UNCOUNTED,
        "Sessions deleted for which none of the keys of --refs was there."
    );
    metrics::describe_gauge!(KEYS, "Keys of the pattern.");
    Some(handle)
}

/// The meters of one pattern.
#[derive(Clone)]
pub(super) struct Meters {
    sessions: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Meters {
    /// Registers the meters, so that they are exported before the first event.
    pub(super) fn new(pattern: &str, clock: Arc<dyn Clock>) -> Self {
        let meters = Self {
            sessions: pattern.into(),
            clock,
        };
        meters.gauge(QUARANTINED, None, 0);
        for name in [DELETED, SCANNED, UNSURE, UNCOUNTED] {
            meters.count(name, None, 0);
        }
        meters
    }

    fn labels(&self, more: Option<(&'static str, &'static str)>) -> Vec<metrics::Label> {
        let own = metrics::Label::new("sessions", self.sessions.to_string());
        let more = more.map(|(name, value)| metrics::Label::from_static_parts(name, value));
        std::iter::once(own).chain(more).collect()
    }

    fn gauge(&self, name: &'static str, label: Option<(&'static str, &'static str)>, value: u64) {
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
        metrics::gauge!(name, self.labels(label)).set(value as f64);
    }

    fn count(&self, name: &'static str, label: Option<(&'static str, &'static str)>, by: u64) {
        metrics::counter!(name, self.labels(label)).increment(by);
    }

    /// Records an event of a reaper's pass.
    pub(super) fn note(&self, notice: &ReapNotice<'_>) {
        match notice {
            ReapNotice::Reaped(_) => self.count(DELETED, None, 1),
            ReapNotice::Quarantined(_) => self.gauge(QUARANTINED, None, 1),
            ReapNotice::Settled => self.gauge(QUARANTINED, None, 0),
            ReapNotice::Unsure(sessions) => self.count(UNSURE, None, *sessions),
            _ => {}
        }
    }

    /// Records the end of a reaper's pass.
    pub(super) fn reaped(&self, report: &ReapReport) {
        metrics::histogram!(CLEANUP, self.labels(None)).record(report.took.as_secs_f64());
        for (why, kept) in [
            ("active", report.active),
            ("younger", report.younger),
            ("referenced", report.referenced),
            ("not_hash", report.not_hash),
            ("invalid", report.invalid),
        ] {
            self.gauge(KEPT, Some(("why", why)), kept);
        }
        self.gauge(NEVER_DUE, None, report.never_due);
        self.count(UNCOUNTED, None, report.uncounted);
        if let Some(entries) = report.entries {
            self.gauge(ENTRIES, None, entries);
            self.gauge(OVERDUE, None, report.oldest_overdue.as_secs());
        }
        if report.quarantined.is_none() {
            self.succeeded(REAP);
        }
    }

    /// Records the interval of a kind of pass.
    pub(super) fn begin(&self, pass: &'static str, interval: Duration) {
        metrics::gauge!(INTERVAL, self.labels(Some(("pass", pass)))).set(interval.as_secs_f64());
        self.succeeded(pass);
    }

    /// Records a pass during which the store was unreachable.
    pub(super) fn missed(&self) {
        // Only the next pass can determine the break; until then nothing is reaped.
        let unreachable = Break::Unreachable { reason: String::new() };
        self.note(&ReapNotice::Quarantined(&unreachable));
    }

    /// Records the end of an index pass.
    pub(super) fn indexed(&self, report: &IndexReport) {
        self.count(SCANNED, None, report.counts.scanned);
        self.changed(report);
        self.gauge(KEYS, None, report.counts.scanned);
        self.gauge(ENTRIES, None, report.counts.entries);
        self.gauge(NEVER_DUE, None, report.counts.never_due);
        self.gauge(DRIFT, None, report.changed());
        self.succeeded(INDEX);
    }

    /// Counts the changes of an index pass.
    pub(super) fn changed(&self, report: &IndexReport) {
        for (how, changed) in [
            ("added", report.added),
            ("updated", report.updated),
            ("removed", report.removed),
        ] {
            self.count(INDEXED, Some(("how", how)), changed);
        }
    }

    fn succeeded(&self, pass: &'static str) {
        self.gauge(LAST_SUCCESS, Some(("pass", pass)), self.clock.wall_micros() / 1_000_000);
    }
}
