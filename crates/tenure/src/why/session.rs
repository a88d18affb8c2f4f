//! Describes the events and the current state of a session in sentences.

use tenure_core::event::{Event, EventKind};
use tenure_core::session::{Session, SessionState};
use tenure_core::time::show_duration;

use super::history::number;

/// Whether events of this kind belong to the history of a session.
pub(super) fn is_about(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::SessionCreated
            | EventKind::SessionDisconnected
            | EventKind::SessionResumed
            | EventKind::SessionReaped
            | EventKind::SessionDeleted
            | EventKind::SessionsRepaired
    )
}

/// The current state.
pub(super) fn now(session: Option<&Session>) -> String {
    let Some(session) = session else {
        return "not found".to_owned();
    };
    let epoch = session.epoch;
    match (session.state, session.reap_in) {
        (SessionState::Active, _) => format!(
            "active, with {} (epoch {epoch})",
            number(session.connections, "connection")
        ),
        (SessionState::Disconnected, Some(left)) => {
            let left = show_duration(left);
            format!("disconnected, and can be resumed for another {left} (epoch {epoch})")
        }
        (SessionState::Disconnected, None) => {
            format!("all its connections are of dead members; the grace begins when they are detached (epoch {epoch})")
        }
        (SessionState::Orphan, _) => format!("an orphan: its grace is over, the reaper will delete it (epoch {epoch})"),
    }
}

/// The sentence for an event.
pub(super) fn describe(event: &Event, who: &str, reason: &str) -> String {
    let epoch = event.epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
    let connection = event.connection.as_ref().map(ToString::to_string).unwrap_or_default();
    let alias = event
        .alias
        .as_ref()
        .map(|alias| format!(", alias {alias}"))
        .unwrap_or_default();
    match event.kind {
        EventKind::SessionCreated => {
            format!("{who} created it with the connection {connection} (epoch {epoch}{alias})")
        }
        EventKind::SessionResumed => {
            format!("{who} resumed it with the connection {connection} (epoch {epoch}{alias})")
        }
        EventKind::SessionDisconnected => {
            let last = format!("its last connection {connection} at {who} is gone");
            match reason {
                "detached" => format!("{last}: it was detached (epoch {epoch}); the grace began"),
                "max_age" => format!("{last}: it had been attached for too long (epoch {epoch}); the grace began"),
                "ghost" => format!("{last}: its tenure is unknown (epoch {epoch}); the grace began"),
                _ => format!("{last}: that tenure had ended ({reason}; epoch {epoch}); the grace began"),
            }
        }
        EventKind::SessionReaped => match &event.pass {
            Some(pass) => format!("the grace was over: it was reaped (epoch {epoch}{alias}); pass {pass}"),
            None => format!("the grace was over: it was reaped by an attach that met it (epoch {epoch}{alias})"),
        },
        EventKind::SessionDeleted => format!("it was deleted on request (epoch {epoch}{alias})"),
        _ => {
            let counts: Vec<_> = event
                .counts
                .iter()
                .map(|(kind, count)| format!("{kind} {count}"))
                .collect();
            format!("sessions and their index were repaired ({})", counts.join(", "))
        }
    }
}
