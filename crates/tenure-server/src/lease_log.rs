//! One structured log line for each change of a lease that goes through this daemon, in the words of the library, and a
//! count of them.

use tenure::meters;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, ReleaseOutcome, Token};

/// Tells which of the leases asked for were given out.
pub(crate) fn acquired(group: &Group, tenure: &TenureId, leases: &[LeaseName], outcomes: &[AcquireOutcome]) {
    let instance = tenure.member();
    for (target, outcome) in leases.iter().zip(outcomes) {
        let AcquireOutcome::Granted { token, from } = outcome else {
            continue;
        };
        let token = token.get();
        if let Some(from) = from {
            let reason = "holder_ended";
            tracing::info!(%group, %instance, %target, token, %from, reason, %tenure, "lease taken over");
            meters::lease_transition(group, "taken_over");
        } else {
            tracing::info!(%group, %instance, %target, token, reason = "free", %tenure, "lease acquired");
            meters::lease_transition(group, "acquired");
        }
    }
}

/// Tells which leases were given up.
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
