//! The progress of passes over sessions, for passes that end before their report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{IndexReport, ReapNotice, ReapReport, Reaper, WalkNotice};

/// The progress of an index pass.
#[derive(Debug, Default)]
pub struct IndexProgress(Mutex<IndexReport>);

impl IndexProgress {
    /// Records an event of the pass.
    pub fn note(&self, notice: &WalkNotice<'_>) {
        if let WalkNotice::Changed(report) = notice {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = **report;
        }
    }

    /// The changes so far.
    #[must_use]
    pub fn report(&self) -> IndexReport {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the page in flight. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PageInFlight(Arc<AtomicU64>);

impl PageInFlight {
    /// Resets the size for a new pass.
    pub fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Records an event of the pass.
    pub fn note(&self, notice: &ReapNotice<'_>) {
        let size = match notice {
            ReapNotice::Reaping(ids) => ids.len() as u64,
            _ => 0,
        };
        self.0.store(size, Ordering::Relaxed);
    }

    /// The results of a dropped pass. Closes the reaper.
    pub async fn dropped(&self, reaper: Reaper) -> ReapReport {
        let in_flight = self.0.load(Ordering::Relaxed);
        let mut report = reaper.unfinished().cloned().unwrap_or_default();
        // The page in flight is the one that the reaper could not count, if any.
        report.unsure += in_flight.max(reaper.close().await);
        report
    }
}
