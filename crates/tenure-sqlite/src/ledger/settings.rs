//! The settings of rosters.

use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::RosterName;
use tenure_core::ledger::{Reason, RosterSettings, SettingsPatch, Version};

use super::rows::{many, one};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{number, read_name, read_number, statements};
use crate::step::Answer;

statements! { "ledger/settings.sql":
    ROSTERS = "rosters",
    GET = "get",
    PUT = "put",
}

pub(super) fn rosters(sql: &Connection) -> Result<Vec<RosterName>, Cause> {
    many(sql, ROSTERS, [], |row| read_name(row, 0))
}

/// `None` when there is no such roster.
pub(super) fn get(sql: &Connection, roster: &str) -> Result<Option<RosterSettings>, Cause> {
    one(sql, GET, [roster], |row| {
        Ok(RosterSettings {
            default_capacity: row.get(0)?,
            stale_after: Duration::from_millis(read_number(row, 1)?),
            require_heartbeat: row.get(2)?,
            snapshot: Duration::from_millis(read_number(row, 3)?),
            version: Version(read_number(row, 4)?),
        })
    })
}

fn millis(span: Duration) -> i64 {
    number(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

impl Step<'_> {
    pub(super) fn set_settings(&mut self, patch: &SettingsPatch) -> Answer<RosterSettings> {
        let known = get(self.sql, self.roster)?.unwrap_or_default();
        let wanted = patch.applied_to(known);
        // What changes nothing leaves no roster behind.
        if wanted == known {
            return Ok(Ok(known));
        }
        self.because(Reason::Operator)?;
        self.sql.prepare_cached(PUT)?.execute(params![
            self.roster,
            wanted.default_capacity,
            millis(wanted.stale_after),
            wanted.require_heartbeat,
            millis(wanted.snapshot),
        ])?;
        let written = get(self.sql, self.roster)?;
        written
            .map(Ok)
            .ok_or_else(|| Cause::Strange("settings that were written are not there".to_owned()))
    }
}
