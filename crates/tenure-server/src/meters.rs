//! The metrics of this crate, and the Prometheus recorder of the process.

mod groups;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::Method;
use metrics::{Counter, Histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tenure::loops::{LoopBody, Turn};
use tenure::wire::Code;
use tenure_core::error::Result;
use tenure_core::id::Group;

use self::groups::{GroupSeries, OTHERS, Split};
use crate::watch::MAX_GROUPS;

/// Requests answered. Labels: route (its pattern, never the raw path), method, status.
pub(crate) const REQUESTS: &str = "tenure_http_requests_total";
/// Request duration in seconds. Label: route.
pub(crate) const DURATION: &str = "tenure_http_request_duration_seconds";
/// Handlers that panicked. Label: route.
pub(crate) const PANICS: &str = "tenure_http_panics_total";
/// Requests in flight.
pub(crate) const IN_FLIGHT: &str = "tenure_http_requests_in_flight";
/// Open event streams and long polls.
pub(crate) const STREAMS: &str = "tenure_http_streams";
/// Requests that wait for leases.
pub(crate) const WAITERS: &str = "tenure_lease_waiters";
/// Open connections.
pub(crate) const GROUPS: &str = "tenure_groups";
pub(crate) const CONNECTIONS: &str = "tenure_http_connections";
/// Request bodies that are arriving.
pub(crate) const BODIES: &str = "tenure_http_bodies";
/// Connections closed because there were too many.
pub(crate) const CROWDED_OUT: &str = "tenure_http_crowded_out_total";
/// Connections that could not be accepted.
pub(crate) const ACCEPT_ERRORS: &str = "tenure_http_accept_errors_total";
/// Beats refused because of overload, after their token was accepted.
pub(crate) const BEATS_REFUSED: &str = "tenure_beats_refused_total";
/// Connections dropped because the client did not read.
pub(crate) const STALLED: &str = "tenure_http_stalled_total";
/// Requests refused by admission. Label: why (the problem code).
pub(crate) const REFUSED: &str = "tenure_http_refused_total";
/// Failed TLS handshakes.
pub(crate) const HANDSHAKES_FAILED: &str = "tenure_tls_handshakes_failed_total";
/// Tokens in the token file.
pub(crate) const TOKENS: &str = "tenure_tokens";
/// 1 while a credentials file is invalid and its previous content stays in use. Label: what.
pub(crate) const STALE: &str = "tenure_credentials_stale";
/// The token file.
pub(crate) const TOKENS_FILE: &str = "tokens";
/// The certificate files.
pub(crate) const TLS_FILES: &str = "tls";
/// Held leases, as of the last look at the groups. Label: group.
pub(crate) const LEASES: &str = "tenure_leases";
/// Sessions, as of the last look at the groups. Label: group.
pub(crate) const SESSIONS: &str = "tenure_sessions";
/// 1 when the store answered recently.
pub(crate) const STORE_UP: &str = "tenure_store_up";
/// Ended spans of traces. Label: outcome (`exported`; `failed`: the collector did not take them; `dropped`: the queue was full).
#[cfg(feature = "otel")]
pub(crate) const SPANS: &str = "tenure_trace_spans_total";

/// How often the recorder's buffers are drained; without it, histograms grow until the next scrape.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

const BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

/// What the recorder of this process has recorded.
pub(crate) struct Recorded {
    rest: PrometheusHandle,
    groups: Arc<GroupSeries>,
}

impl Recorded {
    /// All series in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        self.rest.render() + &self.groups.render()
    }

    /// Begins a listing of groups. Returns its number.
    pub(crate) fn begin_listing(&self) -> u64 {
        self.groups.begin_listing()
    }

    /// Drops the series of all groups but these, which a listing chose.
    pub(crate) fn keep_groups(&self, named: &[Group], listing: u64) {
        self.groups
            .keep_only(&named.iter().map(Group::as_str).collect(), listing);
    }
}

/// The recorder of this process, installed by the first server. `None` when the program installed its own: it then serves
/// its metrics itself.
pub(crate) fn recorder() -> Option<&'static Recorded> {
    static RECORDER: OnceLock<Option<Recorded>> = OnceLock::new();
    let install = || {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?;
        let recorder = builder.build_recorder();
        let recorded = Recorded {
            rest: recorder.handle(),
            groups: GroupSeries::new(MAX_GROUPS),
        };
        let recorder = Split {
            groups: Arc::clone(&recorded.groups),
            rest: recorder,
        };
        match metrics::set_global_recorder(recorder) {
            Ok(()) => {
                describe();
                begin();
                Some(recorded)
            }
            Err(_) => {
                tracing::warn!("another metrics recorder is installed; /metrics stays empty");
                None
            }
        }
    };
    RECORDER.get_or_init(install).as_ref()
}

fn describe() {
    metrics::describe_counter!(REQUESTS, "Requests answered.");
    metrics::describe_histogram!(DURATION, metrics::Unit::Seconds, "Request duration.");
    metrics::describe_counter!(PANICS, "Handlers that panicked.");
    metrics::describe_gauge!(IN_FLIGHT, "Requests in flight.");
    metrics::describe_gauge!(STREAMS, "Open event streams and long polls.");
    metrics::describe_gauge!(WAITERS, "Requests that wait for leases.");
    metrics::describe_gauge!(CONNECTIONS, "Open connections.");
    metrics::describe_gauge!(BODIES, "Request bodies that are arriving.");
    metrics::describe_counter!(CROWDED_OUT, "Connections closed because there were too many.");
    metrics::describe_counter!(ACCEPT_ERRORS, "Connections that could not be accepted.");
    metrics::describe_counter!(BEATS_REFUSED, "Beats refused because the daemon was overloaded.");
    metrics::describe_counter!(STALLED, "Connections dropped because the client did not read.");
    metrics::describe_counter!(
        REFUSED,
        "Requests refused: no valid token, no permission, rate limit, host or origin."
    );
    metrics::describe_counter!(HANDSHAKES_FAILED, "Failed TLS handshakes.");
    metrics::describe_gauge!(TOKENS, "Tokens in the token file.");
    metrics::describe_gauge!(
        STALE,
        "1 while a credentials file is invalid and its previous content stays in use."
    );
    metrics::describe_gauge!(GROUPS, "Groups in the store.");
    metrics::describe_gauge!(LEASES, "Held leases.");
    metrics::describe_gauge!(SESSIONS, "Sessions.");
    metrics::describe_gauge!(STORE_UP, "1 when the store answered recently.");
    metrics::describe_counter!(tenure::meters::BEATS, "Beats, by outcome.");
    metrics::describe_counter!(tenure::meters::ENDED, "Tenures ended by this process.");
    metrics::describe_counter!(
        tenure::meters::EVICTED_ENTRIES,
        "Entries removed from registries because their owner's tenure ended."
    );
    metrics::describe_gauge!(tenure::meters::LEDGER_UP, "1 while the ledger of rosters answers.");
    metrics::describe_counter!(
        tenure::meters::LEASE_TRANSITIONS,
        "Lease transitions through this process."
    );
}

/// Counters used in alerts exist from the start: `increase()` ignores the first event of a series that starts with it.
fn begin() {
    for counter in [CROWDED_OUT, ACCEPT_ERRORS, BEATS_REFUSED, STALLED] {
        metrics::counter!(counter).absolute(0);
    }
    for outcome in ["renewed", "ended", "unknown", "refused", "failed"] {
        tenure::meters::beats(outcome, 0);
    }
}

/// Counts ended spans.
#[cfg(feature = "otel")]
pub(crate) fn spans(outcome: &'static str, count: u64) {
    metrics::counter!(SPANS, "outcome" => outcome).increment(count);
}

/// Initializes the counters of spans, where there are traces.
#[cfg(feature = "otel")]
pub(crate) fn begin_spans() {
    metrics::describe_counter!(SPANS, "Ended spans of traces, by outcome.");
    for outcome in ["exported", "failed", "dropped"] {
        spans(outcome, 0);
    }
}

/// Counts a request refused by admission.
pub(crate) fn refused(code: Code) {
    metrics::counter!(REFUSED, "why" => code.as_str()).increment(1);
}

/// Counts a failed TLS handshake.
pub(crate) fn handshake_failed() {
    metrics::counter!(HANDSHAKES_FAILED).increment(1);
}

/// Sets the number of tokens.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
pub(crate) fn tokens(count: usize) {
    metrics::gauge!(TOKENS).set(count as f64);
}

/// Sets whether a credentials file is invalid.
pub(crate) fn stale(what: &'static str, is: bool) {
    metrics::gauge!(STALE, "what" => what).set(if is { 1.0 } else { 0.0 });
}

/// Counts a connection that was opened.
pub(crate) fn connection_opened() {
    metrics::gauge!(CONNECTIONS).increment(1.0);
}

/// Counts a connection that was closed.
pub(crate) fn connection_closed() {
    metrics::gauge!(CONNECTIONS).decrement(1.0);
}

/// Counts connections closed because there were too many.
pub(crate) fn crowded_out(connections: usize) {
    metrics::counter!(CROWDED_OUT).increment(connections as u64);
}

/// Counts a connection that could not be accepted.
pub(crate) fn not_accepted() {
    metrics::counter!(ACCEPT_ERRORS).increment(1);
}

/// Counts a refused beat.
pub(crate) fn beat_refused() {
    metrics::counter!(BEATS_REFUSED).increment(1);
}

/// Counts a connection whose client did not read.
pub(crate) fn stalled() {
    metrics::counter!(STALLED).increment(1);
}

/// Sets the number of groups, and that of the members of those without a name in the metrics.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
pub(crate) fn groups(total: u64, other_members: u64) {
    metrics::gauge!(GROUPS).set(total as f64);
    metrics::gauge!(tenure::meters::MEMBERS, "group" => OTHERS).set(other_members as f64);
}

/// Sets the numbers of held leases and of sessions in a group.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
pub(crate) fn holdings(group: &Group, leases: u64, sessions: u64) {
    metrics::gauge!(LEASES, "group" => group.to_string()).set(leases as f64);
    metrics::gauge!(SESSIONS, "group" => group.to_string()).set(sessions as f64);
}

/// The loop that drains the recorder's buffers. Every server runs one.
pub(crate) struct Upkeep;

#[async_trait]
impl LoopBody for Upkeep {
    async fn turn(&mut self) -> Result<Turn> {
        if let Some(recorder) = recorder() {
            recorder.rest.run_upkeep();
        }
        Ok(Turn::idle())
    }
}

/// The meters of one route. Handles are looked up once: a beat must not pay for label strings.
pub(crate) struct RouteMeters {
    route: Arc<str>,
    duration: Histogram,
    /// A route has few pairs of method and status, so a scan is the fastest map.
    requests: RwLock<Vec<(&'static str, u16, Counter)>>,
}

impl RouteMeters {
    pub(crate) fn new(route: &str) -> Self {
        let route: Arc<str> = route.into();
        let duration = metrics::histogram!(DURATION, "route" => route.to_string());
        Self {
            route,
            duration,
            requests: RwLock::default(),
        }
    }

    pub(crate) fn answered(&self, method: &'static str, status: u16, took: Duration) {
        self.duration.record(took.as_secs_f64());
        let known = self.requests.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., counter)) = known.iter().find(|(m, s, _)| *s == status && *m == method) {
            return counter.increment(1);
        }
        drop(known);
        let counter = |status: u16| {
            let labels = [
                ("route", self.route.to_string()),
                ("method", method.to_owned()),
                ("status", status.to_string()),
            ];
            metrics::counter!(REQUESTS, &labels)
        };
        // Used in alerts; see `begin`.
        counter(503).increment(0);
        let counter = counter(status);
        counter.increment(1);
        self.requests
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push((method, status, counter));
    }

    pub(crate) fn panicked(&self) {
        metrics::counter!(PANICS, "route" => self.route.to_string()).increment(1);
    }

    pub(crate) fn route(&self) -> &str {
        &self.route
    }
}

/// The label of a method; unknown methods share one, so that clients cannot create series.
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
