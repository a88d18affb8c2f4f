//! The records of ended tenures: why they ended, and when what they leased can be had.

use std::time::Duration;

use rusqlite::{Row, params};
use tenure_core::membership::EndReason;
use tenure_core::settling::end_of;
use tenure_core::{StoreTime, TenureId};

use crate::error::Cause;
use crate::sql::{read_instant, statements};
use crate::step::Step;

statements! { "membership.sql":
    RECORD = "record",
}

/// How a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) reason: EndReason,
    /// Its last end time, as it was when it ended.
    pub(crate) end: StoreTime,
    /// When it ended.
    pub(crate) at: StoreTime,
}

impl Ended {
    /// Reads reason, end time and time of the end from three columns.
    pub(crate) fn read(row: &Row<'_>, first: usize) -> Result<Self, Cause> {
        let reason = row.get_ref(first)?.as_str().ok().and_then(EndReason::parse);
        Ok(Self {
            reason: reason.unwrap_or(EndReason::Unknown),
            end: read_instant(row, first + 1)?,
            at: read_instant(row, first + 2)?,
        })
    }

    /// The same, when there is a record.
    pub(crate) fn read_or_none(row: &Row<'_>, first: usize) -> Result<Option<Self>, Cause> {
        match row.get_ref(first)? {
            rusqlite::types::ValueRef::Null => Ok(None),
            _ => Self::read(row, first).map(Some),
        }
    }

    /// How long until somebody else can have what the tenure leased. The process of one that was superseded or expelled
    /// may be at work without knowing, until its last end time or, after a gap, for as long as it had left when it
    /// ended; the others have said themselves that it is over, or are past their end.
    pub(crate) fn free_in(self, resumed_at: StoreTime, now: StoreTime) -> Duration {
        match self.reason {
            EndReason::Superseded | EndReason::Expelled => {
                end_of(self.end, self.end.since(self.at), resumed_at, now).since(now)
            }
            EndReason::Left | EndReason::Lapsed | EndReason::Unknown => Duration::ZERO,
        }
    }
}

impl Step<'_> {
    /// The record of an ended tenure, until it is forgotten.
    pub(crate) fn record_of(&self, tenure: &TenureId) -> Result<Option<Ended>, Cause> {
        let mut look = self.sql.prepare_cached(RECORD)?;
        let mut rows = look.query(params![self.id, tenure.to_string()])?;
        rows.next()?.map(|row| Ended::read(row, 0)).transpose()
    }

    /// The reason on record; `Unknown` when there is none.
    pub(crate) fn reason_of(&self, tenure: &TenureId) -> Result<EndReason, Cause> {
        Ok(self
            .record_of(tenure)?
            .map_or(EndReason::Unknown, |record| record.reason))
    }
}
