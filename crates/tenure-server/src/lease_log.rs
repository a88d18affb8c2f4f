//! One structured log line for each change of a lease that goes through this daemon, and a count of them.

use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, ReleaseOutcome, Token};

/// Tells which of the leases asked for were given out.
pub(crate) fn acquired(group: &Group, tenure: &TenureId, leases: &[LeaseName], outcomes: &[AcquireOutcome]) {
    let instance = tenure.member();
    for (lease, outcome) in leases.iter().zip(outcomes) {
        let AcquireOutcome::Granted { token, from } = outcome else {
            continue;
        };
        match from {
            Some(from) => {
                tracing::info!(%group, %instance, target = %lease, %token, %tenure, %from, "lease taken over");
            }
            None => tracing::info!(%group, %instance, target = %lease, %token, %tenure, "lease granted"),
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
    for ((lease, token), outcome) in leases.iter().zip(outcomes) {
        match (outcome, to) {
            (ReleaseOutcome::Released, _) => {
                tracing::info!(%group, %instance, target = %lease, %token, %tenure, reason = "released", "lease released");
            }
            (ReleaseOutcome::Reserved, Some(to)) => {
                tracing::info!(%group, %instance, target = %lease, %token, %tenure, %to, reason = "handed_off", "lease released");
            }
            _ => {}
        }
    }
}
