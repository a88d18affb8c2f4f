//! Taking out of the index what we added to it.

use tenure_core::error::{Outcome, Result};

use super::Sessions;
use super::report::UndoReport;
use super::step::Mode;
use crate::PAGE;

/// Gets what an undo has taken out so far, and says whether it continues. It must return soon.
pub type UndoListener<'a> = dyn Fn(UndoReport) -> bool + Send + Sync + 'a;

impl Sessions {
    /// Takes out every entry that we added and nobody has changed since, and all keys of ours with it. Broken off, it can
    /// be run again. O(entries that we added). What the reaper deleted does not come back.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Misconfigured`; what was taken out by then stays out.
    pub async fn undo(&self) -> Result<UndoReport> {
        self.undo_telling(&|_| true).await
    }

    /// The same, telling after each page what was taken out so far. It ends early once the listener answers `false`.
    ///
    /// # Errors
    /// Those of [`Sessions::undo`].
    pub async fn undo_telling(&self, listener: &UndoListener<'_>) -> Result<UndoReport> {
        self.take_out(Mode::Write, listener).await
    }

    /// Tells what [`Sessions::undo`] would take out. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Sessions::undo`].
    pub async fn preview_undo(&self) -> Result<UndoReport> {
        self.take_out(Mode::Look, &|_| true).await
    }

    async fn take_out(&self, mode: Mode, listener: &UndoListener<'_>) -> Result<UndoReport> {
        self.check_cluster().await?;
        let (mut report, mut from) = (UndoReport::default(), 0);
        loop {
            let (removed, not_ours, looked) = match self.steps.undo(mode, from).await {
                Ok(undone) => undone,
                Err(error) => {
                    if mode == Mode::Write && error.outcome() == Outcome::Unknown {
                        report.unsure += PAGE as u64;
                        listener(report);
                    }
                    return Err(error);
                }
            };
            report.removed += removed;
            report.not_ours += not_ours;
            from += looked;
            if !listener(report) {
                return Ok(report);
            }
            // To write, the last page is the empty one: it removes the notes as well.
            if looked == 0 || (mode == Mode::Look && looked < PAGE as u64) {
                return Ok(report);
            }
            self.steps.rest(looked).await;
        }
    }
}
