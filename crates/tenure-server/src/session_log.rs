//! One structured log line for each change of a session through this daemon, named like the events.
//!
//! Gaining or losing one connection of several is not a change.

use tenure::wire::ms;
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::session::{Attach, AttachOutcome, Detach, DetachOutcome, Epoch, How};

/// Logs created and resumed sessions.
pub(crate) fn attached(group: &Group, tenure: &TenureId, attaches: &[Attach], outcomes: &[AttachOutcome]) {
    let instance = tenure.member();
    for (attach, outcome) in attaches.iter().zip(outcomes) {
        let AttachOutcome::Attached { how, session } = outcome else {
            continue;
        };
        let (connection, epoch, session) = (&attach.connection, session.epoch.get(), &session.session);
        match how {
            How::Created => tracing::info!(%group, %instance, %session, %connection, epoch, %tenure, "session created"),
            How::Resumed => tracing::info!(%group, %instance, %session, %connection, epoch, %tenure, "session resumed"),
            How::Attached => {}
        }
    }
}

/// Logs sessions that lost their last connection.
pub(crate) fn detached(group: &Group, tenure: &TenureId, detaches: &[Detach], outcomes: &[DetachOutcome]) {
    let instance = tenure.member();
    for (detach, outcome) in detaches.iter().zip(outcomes) {
        let DetachOutcome::Detached { reap_in: Some(grace) } = outcome else {
            continue;
        };
        let (session, connection, grace_ms) = (&detach.session, &detach.connection, ms(*grace));
        let reason = "detached";
        tracing::info!(%group, %instance, %session, %connection, reason, grace_ms, %tenure, "session disconnected");
    }
}

/// Logs a deleted session.
pub(crate) fn deleted(group: &Group, session: &SessionId, epoch: Epoch) {
    tracing::info!(%group, %session, epoch = epoch.get(), "session deleted");
}
