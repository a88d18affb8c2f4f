//! The records of ended tenures, until they expire, and the tenures with unreleased holdings.

use std::collections::BTreeSet;

use super::rows::EndedRow;
use super::table::Table;
use crate::id::TenureId;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// Tenures by time, then by text.
pub(super) type ByTime = BTreeSet<(StoreTime, TenureId)>;

/// Ended tenures.
#[derive(Debug, Default)]
pub(super) struct EndedModel {
    pub(super) table: Table<TenureId, EndedRow>,
    /// Tenures without holdings, by the expiry of their record.
    forget: ByTime,
    /// Tenures with holdings, by the time of their next release: those that did not lapse, and those that did.
    visits: [ByTime; 2],
}

impl EndedRow {
    /// Whether its process may still run without knowing that the tenure has ended.
    pub(super) fn may_still_run(&self) -> bool {
        self.reason.may_still_run()
    }
}

impl EndedModel {
    pub(super) fn get(&self, tenure: &TenureId) -> Option<&EndedRow> {
        self.table.get(tenure)
    }

    /// A row that no undurable step changed.
    pub(super) fn durable(&self, tenure: &TenureId) -> Option<&EndedRow> {
        let durable = !self.table.is_undurable(tenure);
        durable.then(|| self.get(tenure)).flatten()
    }

    /// Sets or removes a row and its index entry.
    pub(super) fn set(&mut self, tenure: TenureId, row: Option<EndedRow>) {
        let added = row.map(|row| (tenure.clone(), row));
        if let Some(before) = self.table.set(tenure.clone(), row) {
            let (index, at) = self.place(&before);
            index.remove(&(at, tenure));
        }
        if let Some((tenure, row)) = added {
            let (index, at) = self.place(&row);
            index.insert((at, tenure));
        }
    }

    fn place(&mut self, row: &EndedRow) -> (&mut ByTime, StoreTime) {
        match row.visit {
            None => (&mut self.forget, row.forget_at),
            Some(at) => (&mut self.visits[usize::from(row.reason == EndReason::Lapsed)], at),
        }
    }

    /// Sets the next release of a tenure; `None` if it has no holdings left.
    pub(super) fn visit(&mut self, tenure: &TenureId, at: Option<StoreTime>) {
        let row = self.get(tenure).filter(|row| row.visit.is_some());
        if let Some(row) = row.copied() {
            self.set(tenure.clone(), Some(EndedRow { visit: at, ..row }));
        }
    }

    /// Lapsed or other tenures with holdings, by the time of their next release.
    pub(super) fn visits(&self, lapsed: bool) -> &ByTime {
        self.table.see_all();
        &self.visits[usize::from(lapsed)]
    }

    /// The number of tenures with holdings.
    pub(super) fn releasing(&self) -> u64 {
        self.table.see_all();
        (self.visits[0].len() + self.visits[1].len()) as u64
    }

    /// The tenures whose records have expired.
    pub(super) fn forgettable(&self, limit: u32, now: StoreTime) -> Vec<TenureId> {
        let due = self.forget.iter().take_while(|(at, _)| *at <= now);
        due.take(limit as usize).map(|(_, tenure)| tenure.clone()).collect()
    }
}
