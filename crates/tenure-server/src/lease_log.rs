//! One structured log line and one count for each change of a lease through this daemon, with the same fields as the
//! library's.

use std::sync::Arc;

use tenure::meters;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, ReleaseOutcome, Token};

use crate::app::App;

/// A granted lease, its token, and its previous holder.
type GrantedLease = (LeaseName, Token, Option<TenureId>);

/// Logs and counts the granted leases.
pub(crate) fn acquired(
    app: &Arc<App>,
    group: &Group,
    tenure: &TenureId,
    leases: &[LeaseName],
    outcomes: &[AcquireOutcome],
) {
    let asked = leases.iter().zip(outcomes);
    let granted = asked.filter_map(|(lease, outcome)| match outcome {
        AcquireOutcome::Granted { token, from, .. } => Some((lease.clone(), *token, from.clone())),
        _ => None,
    });
    let granted: Vec<GrantedLease> = granted.collect();
    if granted.is_empty() {
        return;
    }
    for (_, _, from) in &granted {
        meters::lease_transition(group, if from.is_some() { "taken_over" } else { "acquired" });
    }
    let (app, group, tenure) = (Arc::clone(app), group.clone(), tenure.clone());
    // The ttl is not in the store's answer; looking it up must not delay the caller.
    tokio::spawn(async move {
        let member = app.read(app.store.member(&group, tenure.member())).await;
        let member = member.ok().flatten().filter(|member| member.tenure == tenure);
        let ttl_ms = member.map(|member| tenure::wire::ms(member.ttl));
        for grant in granted {
            line(&group, &tenure, grant, ttl_ms);
        }
    });
}

fn line(group: &Group, tenure: &TenureId, (target, token, from): GrantedLease, ttl_ms: Option<u64>) {
    let (instance, token) = (tenure.member(), token.get());
    if let Some(from) = from {
        let reason = "holder_ended";
        tracing::info!(%group, %instance, %target, token, %from, reason, ttl_ms, %tenure, "lease taken over");
    } else {
        tracing::info!(%group, %instance, %target, token, reason = "free", ttl_ms, %tenure, "lease acquired");
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
