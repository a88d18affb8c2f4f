//! What is known of a roster as a whole: its marks and settings, and how many ended tenures the ledger has to follow.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use tenure_core::StoreTime;
use tenure_core::brake::Brake;
use tenure_core::ledger::{RosterSettings, Version};
use tenure_core::sweep::BURST;

use crate::error::Cause;
use crate::group::Work;
use crate::sql::{number, read_instant_or_none, read_number, read_span, span, statements};

statements! { "roster.sql":
    MARKS = "marks",
    SAVE_MARKS = "save_marks",
    RETIMING = "retiming",
    COUNT_OFFLINED = "count_offlined",
    NEXT_OFFLINED = "next_offlined",
}

/// Of a roster as a whole. Small and `Copy`, as a part of what a group knows about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks {
    /// The highest version that was ever taken over.
    pub(crate) high: Version,
    /// All that the ledger had has arrived.
    pub(crate) seeded: bool,
    pub(crate) settings: Option<RosterSettings>,
    /// Members are still to be given the ttl of the settings.
    pub(crate) retiming: bool,
    /// Rises with every change that the count of the available may have to follow. Not in the file.
    pub(crate) changes: u64,
    /// Ended tenures that the ledger has to follow, by when they ended: those that did not lapse, and those that did.
    pub(crate) offlined: Work,
    pub(crate) offlined_lapsed: Work,
}

impl Marks {
    /// Whether a ledger has told anything of the roster.
    pub(crate) fn is_known(&self) -> bool {
        let settings = self.settings.as_ref().map(|settings| settings.version);
        self.seeded || self.high.max(settings.unwrap_or_default()) != Version::default()
    }

    /// Reads them. What cannot be read counts as lost: the roster is not seeded then, and the ledger tells all anew.
    pub(crate) fn load(sql: &Connection, id: i64) -> Result<Self, Cause> {
        let mut select = sql.prepare_cached(MARKS)?;
        let mut rows = select.query([id])?;
        let marks = rows.next()?.map(Self::read).transpose();
        let marks = marks.unwrap_or_else(|cause| {
            tracing::warn!(group = id, %cause, "the marks of a roster cannot be read; it counts as not seeded");
            None
        });
        Ok(Self {
            retiming: sql.prepare_cached(RETIMING)?.exists([id])?,
            offlined: offlined(sql, id, false)?,
            offlined_lapsed: offlined(sql, id, true)?,
            ..marks.unwrap_or_default()
        })
    }

    fn read(row: &Row<'_>) -> Result<Self, Cause> {
        let settings = match row.get_ref(2)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(RosterSettings {
                version: Version(read_number(row, 2)?),
                default_capacity: row.get(3)?,
                stale_after: read_span(row, 4)?,
                require_heartbeat: row.get(5)?,
                snapshot: read_span(row, 6)?,
            }),
        };
        Ok(Self {
            high: Version(read_number(row, 0)?),
            seeded: row.get(1)?,
            settings,
            ..Self::default()
        })
    }

    /// Writes what differs from before.
    pub(crate) fn save(&self, sql: &Connection, id: i64, before: &Self) -> Result<(), Cause> {
        let row = |marks: &Self| (marks.high, marks.seeded, marks.settings);
        if row(self) == row(before) {
            return Ok(());
        }
        let settings = self.settings.as_ref();
        let of = |part: fn(&RosterSettings) -> Duration| settings.map(|settings| span(part(settings)));
        sql.prepare_cached(SAVE_MARKS)?.execute(params![
            id,
            number(self.high.0),
            self.seeded,
            settings.map(|settings| number(settings.version.0)),
            settings.map(|settings| settings.default_capacity),
            of(|settings| settings.stale_after),
            settings.map(|settings| settings.require_heartbeat),
            of(|settings| settings.snapshot),
        ])?;
        Ok(())
    }

    /// The list that this kind of end goes to.
    pub(super) fn list(&mut self, lapsed: bool) -> &mut Work {
        match lapsed {
            true => &mut self.offlined_lapsed,
            false => &mut self.offlined,
        }
    }

    /// Looks up which of them ended first, after the lists changed. O(log offlined).
    pub(crate) fn refresh(&mut self, sql: &Connection, id: i64) -> Result<(), Cause> {
        for lapsed in [false, true] {
            let list = self.list(lapsed);
            if list.tenures == 0 {
                list.next = None;
                continue;
            }
            let mut next = sql.prepare_cached(NEXT_OFFLINED)?;
            list.next = next.query_row(params![id, lapsed], |row| read_instant_or_none(row, 0))?;
        }
        Ok(())
    }

    /// How many the ledger has to follow.
    pub(crate) fn pending_offline(&self) -> u64 {
        self.offlined.tenures + self.offlined_lapsed.tenures
    }

    /// The earliest time at which the ledger may follow somebody.
    pub(crate) fn next_offline(&self, brake: Option<Brake>) -> Option<StoreTime> {
        let ready = |list: Work| list.next.map(|ended_at| ended_at + BURST);
        let lapsed = match brake {
            Some(brake) => (self.offlined_lapsed.tenures > 0).then_some(brake.until),
            None => ready(self.offlined_lapsed),
        };
        ready(self.offlined).into_iter().chain(lapsed).min()
    }
}

fn offlined(sql: &Connection, id: i64, lapsed: bool) -> Result<Work, Cause> {
    let mut count = sql.prepare_cached(COUNT_OFFLINED)?;
    Ok(count.query_row(params![id, lapsed], |row| {
        Ok(Work {
            tenures: read_number(row, 0)?,
            next: read_instant_or_none(row, 1)?,
        })
    })?)
}
