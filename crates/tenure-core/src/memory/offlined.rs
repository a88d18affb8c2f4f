//! Ended tenures that the ledger must apply.

use super::ended::ByTime;
use super::rows::OfflinedRow;
use super::table::Table;
use crate::id::TenureId;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// Ended tenures, by the time of their end.
#[derive(Debug, Default)]
pub(super) struct OfflinedModel {
    pub(super) table: Table<TenureId, OfflinedRow>,
    /// Those that did not lapse, and those that did.
    by_time: [ByTime; 2],
}

impl OfflinedModel {
    /// Sets or removes a row. Returns whether there was one.
    pub(super) fn set(&mut self, tenure: &TenureId, row: Option<OfflinedRow>) -> bool {
        let before = self.table.set(tenure.clone(), row);
        if let Some(before) = before {
            self.by_time[list_of(&before)].remove(&(before.ended_at, tenure.clone()));
        }
        if let Some(row) = row {
            self.by_time[list_of(&row)].insert((row.ended_at, tenure.clone()));
        }
        before.is_some()
    }

    /// The first end of a lapsed tenure, or of another.
    pub(super) fn first(&self, lapsed: bool) -> Option<StoreTime> {
        self.table.see_all();
        self.by_time[usize::from(lapsed)].first().map(|(at, _)| *at)
    }

    /// The lapsed tenures, or the others, by the time of their end.
    pub(super) fn list(&self, lapsed: bool) -> &ByTime {
        &self.by_time[usize::from(lapsed)]
    }
}

fn list_of(row: &OfflinedRow) -> usize {
    usize::from(row.reason == EndReason::Lapsed)
}
