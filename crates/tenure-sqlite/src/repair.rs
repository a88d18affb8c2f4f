//! What only another program can have done to rows of sessions and rosters: it is mended before they are read.
//!
//! No step leaves such rows behind. They would stay for ever, since a decision looks for what steps leave behind.

use std::time::Duration;

use rusqlite::Connection;

use crate::error::Cause;
use crate::sql::{span, statements};

statements! { "repair.sql":
    LOST_CONNECTIONS = "lost_connections",
    GHOSTS = "ghosts",
    ACTIVE = "active",
    AWAY = "away",
    VISITS = "visits",
    STRAY_OFFLINED = "stray_offlined",
    UNFOLLOWED = "unfollowed",
    REMOVED = "removed",
}

/// Mends what does not fit together. A session that has lost its place gets this grace, if it has none of its own.
pub(crate) fn repair(sql: &Connection, grace: Duration) -> Result<(), Cause> {
    for (what, statement) in [
        ("connections without a session", LOST_CONNECTIONS),
        ("connections of tenures that there never were", GHOSTS),
        ("sessions that had connections and waited for one", ACTIVE),
        ("sessions without connections that waited for none", AWAY),
        ("ended tenures with connections that no sweep would visit", VISITS),
        (
            "pending tenures that no provider names or that are alive",
            STRAY_OFFLINED,
        ),
        (
            "ended tenures of providers that the ledger was not to be told of",
            UNFOLLOWED,
        ),
        ("providers that were removed and are there", REMOVED),
    ] {
        let mut mend = sql.prepare(statement)?;
        // One of them takes the grace.
        let rows = match mend.parameter_count() {
            0 => mend.execute([])?,
            _ => mend.execute([span(grace)])?,
        };
        if rows > 0 {
            tracing::warn!(rows, "the SQLite file had {what}; they were repaired");
        }
    }
    Ok(())
}
