//! The metric names of this crate, each defined once.
//!
//! Metrics go to the recorder that the program has installed with the `metrics` crate; without one they cost almost
//! nothing.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::id::{Group, MemberId};
use tenure_core::membership::{BeatReply, EndReason};
use tenure_core::settling::GapCause;
use tenure_core::sweep::GroupStatus;

/// Registry entries removed because their owner's tenure ended. Labels: group, registry, owner (the host).
pub const EVICTED: &str = "tenure_registry_evicted_total";
/// The same entries, without the owner. A series with an owner does not exist before its first eviction, so an alert
/// would miss that one. Label: group; for `tenure adopt registry` also registry.
pub const EVICTED_ENTRIES: &str = "tenure_evicted_entries_total";
/// Leases removed because their holder's tenure ended and no member had taken them over. Labels: group, owner (the
/// host).
pub const LEASES_EVICTED: &str = "tenure_leases_evicted_total";
/// Members with a current tenure. Label: group.
pub const MEMBERS: &str = "tenure_members";
/// Tenures ended by this process. Labels: group, reason.
pub const ENDED: &str = "tenure_ended_total";
/// Turns of a loop. Labels: sweep, outcome (`ok`, `partial`, `failed`, `panicked`).
pub const SWEEP_RUNS: &str = "tenure_sweep_runs_total";
/// Time of the last successful turn of a loop, in seconds since the epoch; before the first one, the start of the loop.
/// Label: sweep.
pub const SWEEP_LAST_SUCCESS: &str = "tenure_sweep_last_success_timestamp_seconds";
/// Panics of a loop. Label: sweep.
pub const SWEEP_PANICS: &str = "tenure_sweep_panics_total";
/// 1 while a group is inside a grace period. Label: group.
pub const UNSETTLED: &str = "tenure_group_unsettled";
/// 1 while a group is inside a grace period for this cause. Labels: group, cause (`silent`, `clock_back`, `data_loss`,
/// `tail_loss`, `new`): `data_loss` and `tail_loss` mean that the store lost writes.
pub const UNSETTLED_CAUSE: &str = "tenure_group_unsettled_cause";
/// 1 while the brake of a group is engaged. Label: group.
pub const BRAKE: &str = "tenure_brake_engaged";
/// Beats by result. Label: outcome (`renewed`, `ended`, `unknown`, `failed`).
pub const BEATS: &str = "tenure_beats_total";
/// Time from the end time of a tenure until its lapse is recorded, in seconds.
pub const DETECTION_LAG: &str = "tenure_detection_lag_seconds";
/// Leases held by this process. Label: group.
pub const LEASES_HELD: &str = "tenure_leases_held";
/// Lease transitions in this process. Labels: group, transition (`acquired`, `taken_over`, `released`, `handed_off`,
/// `lost`).
pub const LEASE_TRANSITIONS: &str = "tenure_lease_transitions_total";

/// Sessions without a connection, orphans included. Label: group.
pub const SESSIONS_DISCONNECTED: &str = "tenure_sessions_disconnected";
/// How long the oldest orphan has waited for the reaper, in seconds, without those that the brake holds back. Label:
/// group.
pub const OLDEST_OVERDUE: &str = "tenure_sessions_oldest_overdue_seconds";
/// Differences found by the last reconcile. Labels: group, kind.
pub const SESSIONS_DRIFT: &str = "tenure_sessions_drift";
/// Duration of reaper steps that deleted sessions (at most 200 each), in seconds.
pub const ORPHAN_CLEANUP: &str = "tenure_orphan_cleanup_duration_seconds";
/// Sessions deleted by the reaper of this process. Label: group.
pub const ORPHANS_DELETED: &str = "tenure_orphan_sessions_deleted_total";

/// Failed calls of a roster's mirror. Label: roster, as for all of these; `other` stands for names unknown to the
/// ledger.
pub const ROSTER_MIRROR_ERRORS: &str = "tenure_roster_mirror_errors_total";
/// Rows of the ledger that may not have reached the mirror. Label: roster.
pub const ROSTER_DIRTY: &str = "tenure_roster_dirty";
/// Reconciles done by this process. Label: roster.
pub const ROSTER_RECONCILES: &str = "tenure_roster_reconciles_total";
/// Differences found by the last reconcile, in the process that ran it; 0 in the others. Label: roster.
pub const ROSTER_DIVERGENCE: &str = "tenure_roster_divergence";
/// 1 while this process trusts the mirror, 0 while the ledger answers. Label: roster.
pub const ROSTER_TRUSTED: &str = "tenure_roster_mirror_trusted";
/// Reads sent to the ledger in place of the mirror. Label: roster.
pub const ROSTER_FALLBACK_READS: &str = "tenure_roster_fallback_reads_total";
/// Reads by the source of the answer. Labels: roster, source (`mirror`, `ledger`, `none` for a failure).
pub const ROSTER_READS: &str = "tenure_roster_reads_total";
/// Heartbeats. Labels: roster, result (`recorded`, `offline`, `deactivated`, `revoked`, `unknown`, `failed`), recorded
/// (`mirror`, `ledger`, `none`).
pub const ROSTER_HEARTBEATS: &str = "tenure_roster_heartbeats_total";
/// Writes committed in the ledger. Labels: roster, mirrored (`true`, `false`).
pub const ROSTER_WRITES: &str = "tenure_roster_writes_total";
/// Providers set offline in the ledger because their tenure had ended, by trigger. Labels: roster, reason.
pub const ROSTER_OFFLINE: &str = "tenure_roster_offline_total";
/// Repaired inconsistencies within a mirror. Labels: roster, kind.
pub const ROSTER_DRIFT: &str = "tenure_roster_drift_repaired_total";
/// 1 while the ledger of rosters answers, 0 while it does not. Set at the first poll.
pub const LEDGER_UP: &str = "tenure_ledger_up";
/// 1 while this process does not use its hot store because the ledger has another one, else 0.
pub const ROSTER_HOT_STORE_REFUSED: &str = "tenure_roster_hot_store_refused";
/// Circuit breaker of ledger fallback reads: 0 closed, 1 half open, 2 open.
pub const ROSTER_BREAKER: &str = "tenure_roster_breaker_state";
/// Time since a sweep of a roster last succeeded, in seconds. Labels: roster, sweep (`offline`, `heartbeats`,
/// `reconcile`, `expiry`).
pub const ROSTER_SWEEP_AGE: &str = "tenure_roster_sweep_age_seconds";

/// The most series of [`EVICTED`] and [`LEASES_EVICTED`] together; further owners are counted under `other`.
pub const MAX_EVICTED_SERIES: usize = 1_000;

#[expect(clippy::cast_precision_loss, reason = "seconds need no more than 53 bits")]
pub(crate) fn sweep_succeeded(sweep: &str, wall_micros: u64) {
    metrics::gauge!(SWEEP_LAST_SUCCESS, "sweep" => sweep.to_owned()).set(wall_micros as f64 / 1e6);
}

pub(crate) fn sweep_ran(sweep: &str, outcome: &'static str) {
    metrics::counter!(SWEEP_RUNS, "sweep" => sweep.to_owned(), "outcome" => outcome).increment(1);
}

/// Initializes the counters of a loop with 0, for alerts on their increase.
pub(crate) fn begin_sweep(sweep: &str) {
    for outcome in ["failed", "partial"] {
        metrics::counter!(SWEEP_RUNS, "sweep" => sweep.to_owned(), "outcome" => outcome).increment(0);
    }
}

pub(crate) fn sweep_panicked(sweep: &str) {
    metrics::counter!(SWEEP_PANICS, "sweep" => sweep.to_owned()).increment(1);
}

/// Counts beats by reply. Public, because a daemon's batch route beats without the batcher.
pub fn beaten(replies: impl Iterator<Item = BeatReply>) {
    let (mut renewed, mut ended, mut unknown, mut refused) = (0, 0, 0, 0);
    for reply in replies {
        match reply {
            BeatReply::Renewed { .. } => renewed += 1,
            BeatReply::Ended(_) => ended += 1,
            BeatReply::Unknown => unknown += 1,
            BeatReply::Refused => refused += 1,
        }
    }
    let counts = [
        ("renewed", renewed),
        ("ended", ended),
        ("unknown", unknown),
        ("refused", refused),
    ];
    for (outcome, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        beats(outcome, count);
    }
}

/// Counts beats with this outcome.
pub fn beats(outcome: &'static str, count: u64) {
    metrics::counter!(BEATS, "outcome" => outcome).increment(count);
}

/// Counts tenures ended by this process, for any reason.
pub fn ended(group: &Group, reason: EndReason, count: u64) {
    metrics::counter!(ENDED, "group" => group.to_string(), "reason" => reason.as_str()).increment(count);
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 members")]
/// The gauges of a group.
pub fn group(group: &Group, members: u64, unsettled: Option<GapCause>, braked: bool) {
    metrics::gauge!(MEMBERS, "group" => group.to_string()).set(members as f64);
    metrics::gauge!(UNSETTLED, "group" => group.to_string()).set(f64::from(u8::from(unsettled.is_some())));
    for cause in GapCause::ALL {
        let labels = [("group", group.to_string()), ("cause", cause.as_str().to_owned())];
        metrics::gauge!(UNSETTLED_CAUSE, &labels).set(f64::from(u8::from(unsettled == Some(cause))));
    }
    metrics::gauge!(BRAKE, "group" => group.to_string()).set(f64::from(u8::from(braked)));
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 sessions")]
pub(crate) fn sessions(group: &Group, status: &GroupStatus) {
    let overdue = status.next_reap.map(|due| status.as_of.since(due)).unwrap_or_default();
    metrics::gauge!(SESSIONS_DISCONNECTED, "group" => group.to_string()).set(status.disconnected as f64);
    metrics::gauge!(OLDEST_OVERDUE, "group" => group.to_string()).set(overdue.as_secs_f64());
}

/// Initializes the counters of a group with members or pending work: a counter that starts with its first event shows
/// no increase.
pub(crate) fn begin_group(group: &Group) {
    metrics::counter!(EVICTED_ENTRIES, "group" => group.to_string()).increment(0);
    for reason in [EndReason::Lapsed, EndReason::Superseded, EndReason::NoProgress] {
        ended(group, reason, 0);
    }
    begin_leases(group);
    let _ = (metrics::histogram!(DETECTION_LAG), metrics::histogram!(ORPHAN_CLEANUP));
}

/// Initializes the lease metrics of a group.
pub(crate) fn begin_leases(group: &Group) {
    for transition in ["taken_over", "lost"] {
        let labels = [("group", group.to_string()), ("transition", transition.to_owned())];
        metrics::counter!(LEASE_TRANSITIONS, &labels).increment(0);
    }
}

/// Resets the gauges of a group that no longer exists.
pub(crate) fn reset_group(group: &Group) {
    self::group(group, 0, None, false);
    no_sessions(group);
}

fn no_sessions(group: &Group) {
    metrics::gauge!(SESSIONS_DISCONNECTED, "group" => group.to_string()).set(0.0);
    metrics::gauge!(OLDEST_OVERDUE, "group" => group.to_string()).set(0.0);
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 sessions")]
pub(crate) fn drift(group: &Group, kind: &str, found: u64) {
    metrics::gauge!(SESSIONS_DRIFT, "group" => group.to_string(), "kind" => kind.to_owned()).set(found as f64);
}

pub(crate) fn orphan_cleanup(took: Duration) {
    metrics::histogram!(ORPHAN_CLEANUP).record(took.as_secs_f64());
}

pub(crate) fn orphans_deleted(group: &Group, count: u64) {
    metrics::counter!(ORPHANS_DELETED, "group" => group.to_string()).increment(count);
}

pub(crate) fn detection_lag(lag: Duration) {
    metrics::histogram!(DETECTION_LAG).record(lag.as_secs_f64());
}

/// Counts a lease transition. The guards of [`crate::lease`] call it themselves.
pub fn lease_transition(group: &Group, transition: &'static str) {
    metrics::counter!(LEASE_TRANSITIONS, "group" => group.to_string(), "transition" => transition).increment(1);
}

/// Adds to the number of leases held by this process. The guards of [`crate::lease`] call it themselves.
pub fn leases_held(group: &Group, more: f64) {
    metrics::gauge!(LEASES_HELD, "group" => group.to_string()).increment(more);
}

/// Counts evicted leases, with a bounded number of series.
pub(crate) fn leases_evicted(group: &Group, owner: &MemberId, count: u64) {
    // Registry names are not empty, so this series is separate.
    let owner = owner_label(group, "", owner.host());
    let labels = [("group", group.to_string()), ("owner", owner)];
    metrics::counter!(LEASES_EVICTED, &labels).increment(count);
}

/// Counts evicted entries, with a bounded number of series.
pub(crate) fn evicted(group: &Group, registry: &str, owner: &MemberId, count: u64) {
    let owner = owner_label(group, registry, owner.host());
    let labels = [
        ("group", group.to_string()),
        ("registry", registry.to_owned()),
        ("owner", owner),
    ];
    metrics::counter!(EVICTED, &labels).increment(count);
    metrics::counter!(EVICTED_ENTRIES, "group" => group.to_string()).increment(count);
}

pub(crate) fn roster_mirror_error(roster: String) {
    metrics::counter!(ROSTER_MIRROR_ERRORS, "roster" => roster).increment(1);
}

pub(crate) fn roster_fallback_read(roster: String) {
    metrics::counter!(ROSTER_FALLBACK_READS, "roster" => roster).increment(1);
}

pub(crate) fn roster_read(roster: String, source: &'static str) {
    metrics::counter!(ROSTER_READS, "roster" => roster, "source" => source).increment(1);
}

pub(crate) fn roster_heartbeat(roster: String, result: &'static str, recorded: &'static str) {
    metrics::counter!(ROSTER_HEARTBEATS, "roster" => roster, "result" => result, "recorded" => recorded).increment(1);
}

pub(crate) fn roster_write(roster: String, mirrored: bool) {
    let mirrored = if mirrored { "true" } else { "false" };
    metrics::counter!(ROSTER_WRITES, "roster" => roster, "mirrored" => mirrored).increment(1);
}

pub(crate) fn ledger_up(up: bool) {
    metrics::gauge!(LEDGER_UP).set(f64::from(u8::from(up)));
}

pub(crate) fn roster_hot_store_refused(refused: bool) {
    metrics::gauge!(ROSTER_HOT_STORE_REFUSED).set(f64::from(u8::from(refused)));
}

pub(crate) fn roster_breaker(state: u8) {
    metrics::gauge!(ROSTER_BREAKER).set(f64::from(state));
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 rows")]
pub(crate) fn roster(roster: &str, trusted: bool, dirty: u64) {
    metrics::gauge!(ROSTER_TRUSTED, "roster" => roster.to_owned()).set(f64::from(u8::from(trusted)));
    metrics::gauge!(ROSTER_DIRTY, "roster" => roster.to_owned()).set(dirty as f64);
}

pub(crate) fn roster_reconciled(roster: &str, found: u64) {
    roster_divergence(roster, found);
    metrics::counter!(ROSTER_RECONCILES, "roster" => roster.to_owned()).increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 rows")]
pub(crate) fn roster_divergence(roster: &str, found: u64) {
    metrics::gauge!(ROSTER_DIVERGENCE, "roster" => roster.to_owned()).set(found as f64);
}

pub(crate) fn roster_offline(roster: &str, reason: &'static str) {
    metrics::counter!(ROSTER_OFFLINE, "roster" => roster.to_owned(), "reason" => reason).increment(1);
}

pub(crate) fn roster_drift(roster: &str, repaired: &std::collections::BTreeMap<String, u64>) {
    for (kind, count) in repaired {
        metrics::counter!(ROSTER_DRIFT, "roster" => roster.to_owned(), "kind" => kind.clone()).increment(*count);
    }
}

pub(crate) fn roster_sweep_age(roster: &str, sweep: &'static str, age: Duration) {
    metrics::gauge!(ROSTER_SWEEP_AGE, "roster" => roster.to_owned(), "sweep" => sweep).set(age.as_secs_f64());
}

/// The owner label: the owner while there is room for another series, `other` from then on.
fn owner_label(group: &Group, registry: &str, owner: &str) -> String {
    /// Per process, like the recorder.
    static SERIES: Mutex<BTreeSet<(String, String, String)>> = Mutex::new(BTreeSet::new());
    let mut series = SERIES.lock().unwrap_or_else(PoisonError::into_inner);
    bounded(&mut series, (group.to_string(), registry.to_owned(), owner.to_owned()))
}

fn bounded(series: &mut BTreeSet<(String, String, String)>, wanted: (String, String, String)) -> String {
    if !series.contains(&wanted) {
        if series.len() >= MAX_EVICTED_SERIES {
            return "other".to_owned();
        }
        series.insert(wanted.clone());
    }
    wanted.2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_above_the_limit_are_counted_as_other() {
        let mut series = BTreeSet::new();
        let of = |n: usize| ("g".to_owned(), "r".to_owned(), format!("host-{n}"));
        for n in 0..MAX_EVICTED_SERIES {
            assert_eq!(bounded(&mut series, of(n)), format!("host-{n}"));
        }
        assert_eq!(bounded(&mut series, of(MAX_EVICTED_SERIES)), "other");
        assert_eq!(bounded(&mut series, of(0)), "host-0", "a known owner keeps its series");
        assert_eq!(series.len(), MAX_EVICTED_SERIES);
    }
}
