//! What passes over sessions have done so far, for those that end before they can report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{IndexReport, ReapNotice, ReapReport, Reaper, WalkNotice};

/// What a pass of the index did so far.
#[derive(Debug, Default)]
pub struct IndexSoFar(Mutex<IndexReport>);

impl IndexSoFar {
    /// Notes what the pass tells.
    pub fn note(&self, notice: &WalkNotice<'_>) {
        if let WalkNotice::Changed(report) = notice {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = **report;
        }
    }

    /// What it did.
    #[must_use]
    pub fn report(&self) -> IndexReport {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the page that is being reaped. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PageInFlight(Arc<AtomicU64>);

impl PageInFlight {
    /// A pass begins.
    pub fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Notes what the pass tells.
    pub fn note(&self, notice: &ReapNotice<'_>) {
        let size = match notice {
            ReapNotice::Reaping(ids) => ids.len() as u64,
            _ => 0,
        };
        self.0.store(size, Ordering::Relaxed);
    }

    /// What a pass did that was dropped before its end. Closes the reaper.
    pub async fn dropped(&self, reaper: Reaper) -> ReapReport {
        let in_flight = self.0.load(Ordering::Relaxed);
        let mut report = reaper.unfinished().cloned().unwrap_or_default();
        // The page in flight is the one that the reaper could not count, if there is one.
        report.unsure += in_flight.max(reaper.close().await);
        report
    }
}
