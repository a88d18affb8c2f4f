//! One structured log line and one count for each change of a lease through this daemon, with the same fields as the
//! library's.

use tenure::meters;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, Acquired, ReleaseOutcome, Token};

/// Logs and counts the granted leases.
pub(crate) fn acquired(group: &Group, tenure: &TenureId, leases: &[LeaseName], acquired: &Acquired) {
    let (instance, ttl_ms) = (tenure.member(), acquired.ttl.map(tenure::wire::ms));
    for (target, outcome) in leases.iter().zip(&acquired.outcomes) {
        let AcquireOutcome::Granted { token, from, .. } = outcome else {
            continue;
        };
        let token = token.get();
        if let Some(from) = from {
            let reason = "holder_ended";
            tracing::info!(%group, %instance, %target, token, %from, reason, ttl_ms, %tenure, "lease taken over");
            meters::lease_transition(group, "taken_over");
        } else {
            tracing::info!(%group, %instance, %target, token, reason = "free", ttl_ms, %tenure, "lease acquired");
            meters::lease_transition(group, "acquired");
        }
    }
}

/// Logs and counts the released leases.
pub(crate) fn given_up(
    group: &Group,
    tenure: &TenureId,
    leases: &[(LeaseName, Token)],
    to: Option<&MemberId>,
    outcomes: &[ReleaseOutcome],
) {
    let instance = tenure.member();
    for ((target, token), outcome) in leases.iter().zip(outcomes) {
        let token = token.get();
        match (outcome, to) {
            (ReleaseOutcome::Reserved, Some(to)) => {
                let reason = "handed_off";
                tracing::info!(%group, %instance, %target, token, %to, reason, %tenure, "lease handed off");
                meters::lease_transition(group, reason);
            }
            (ReleaseOutcome::Released, _) => {
                let reason = "released";
                tracing::info!(%group, %instance, %target, token, reason, %tenure, "lease released");
                meters::lease_transition(group, reason);
            }
            _ => {}
        }
    }
}
