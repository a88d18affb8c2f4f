//! The settings of rosters.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, Row, params};
use tenure_core::RosterName;
use tenure_core::ledger::{Reason, RosterSettings, RosterView, SettingsPatch, Version};

use super::rows::{many, one};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{number, read_instant_or_none, read_name, read_number, statements};
use crate::writer::Answer;

statements! { "ledger/settings.sql":
    ROSTERS = "rosters",
    OVERVIEW = "overview",
    GET = "get",
    PUT = "put",
}

pub(super) fn rosters(sql: &Connection) -> Result<Vec<RosterName>, Cause> {
    many(sql, ROSTERS, [], |row| read_name(row, 0))
}

pub(super) fn overview(sql: &Connection) -> Result<BTreeMap<RosterName, RosterView>, Cause> {
    let views = many(sql, OVERVIEW, [], |row| {
        let view = RosterView {
            settings: read(row, 1)?,
            is_dirty: row.get(6)?,
            next_expiry: read_instant_or_none(row, 7)?,
        };
        Ok((read_name(row, 0)?, view))
    })?;
    Ok(views.into_iter().collect())
}

/// `None` when the roster does not exist.
pub(super) fn get(sql: &Connection, roster: &str) -> Result<Option<RosterSettings>, Cause> {
    one(sql, GET, [roster], |row| Ok(read(row, 0)?))
}

/// Settings from five columns.
fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<RosterSettings> {
    Ok(RosterSettings {
        default_capacity: row.get(first)?,
        stale_after: Duration::from_millis(read_number(row, first + 1)?),
        require_heartbeat: row.get(first + 2)?,
        snapshot: Duration::from_millis(read_number(row, first + 3)?),
        version: Version(read_number(row, first + 4)?),
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
