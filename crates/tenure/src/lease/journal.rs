//! Log lines and metrics of leases: one structured line per event.

use std::time::Duration;

use tenure_core::id::{Group, MemberId, TenureId};

use super::table::Grant;
use crate::meters;

/// A lease was granted.
pub(super) fn acquired(group: &Group, grant: &Grant, from: Option<&TenureId>, ttl: Duration) {
    let (instance, target, token) = (grant.tenure.member(), &grant.lease, grant.token.get());
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    match from {
        Some(from) => {
            tracing::info!(%group, %instance, %target, token, %from, reason = "holder_ended", ttl_ms, "lease taken over");
            meters::lease_transition(group, "taken_over");
        }
        None => {
            tracing::info!(%group, %instance, %target, token, reason = "free", ttl_ms, "lease acquired");
            meters::lease_transition(group, "acquired");
        }
    }
    meters::leases_held(group, 1.0);
}

/// A lease was lost without being released.
pub(super) fn lost(group: &Group, grant: &Grant, reason: &str) {
    let (instance, target, token) = (grant.tenure.member(), &grant.lease, grant.token.get());
    tracing::warn!(%group, %instance, %target, token, reason, "lease lost");
    meters::lease_transition(group, "lost");
    meters::leases_held(group, -1.0);
}

/// A held lease is being released.
pub(super) fn no_longer_held(group: &Group) {
    meters::leases_held(group, -1.0);
}

/// The store confirmed the release.
pub(super) fn given_up(group: &Group, grant: &Grant, to: Option<&MemberId>) {
    let (instance, target, token) = (grant.tenure.member(), &grant.lease, grant.token.get());
    match to {
        Some(to) => {
            tracing::info!(%group, %instance, %target, token, %to, reason = "handed_off", "lease handed off");
            meters::lease_transition(group, "handed_off");
        }
        None => {
            tracing::info!(%group, %instance, %target, token, reason = "released", "lease released");
            meters::lease_transition(group, "released");
        }
    }
}
