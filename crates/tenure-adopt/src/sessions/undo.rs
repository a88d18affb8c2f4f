//! Removes the entries that we added to the index.

use tenure_core::error::{Outcome, Result};

use super::Sessions;
use super::report::UndoReport;
use super::step::Mode;
use crate::PAGE;

/// Called with the removals so far. Returns whether to continue. It must return soon.
pub type UndoListener<'a> = dyn Fn(UndoReport) -> bool + Send + Sync + 'a;

impl Sessions {
    /// Removes every entry that we added and that is unchanged since, and all our keys. If interrupted, it can run
    /// again. O(entries that we added). Sessions deleted by the reaper are not restored.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Misconfigured`. Earlier removals stay.
    pub async fn undo(&self) -> Result<UndoReport> {
        self.undo_telling(&|_| true).await
    }

    /// Like [`Sessions::undo`], with a listener that is called after each page. Ends early once it returns `false`.
    ///
    /// # Errors
    /// Those of [`Sessions::undo`].
    pub async fn undo_telling(&self, listener: &UndoListener<'_>) -> Result<UndoReport> {
        self.take_out(Mode::Write, listener).await
    }

    /// What [`Sessions::undo`] would remove. Writes nothing.
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
            // In write mode, the last page is the empty one, which also removes the pass counters.
            if looked == 0 || (mode == Mode::Look && looked < PAGE as u64) {
                return Ok(report);
            }
            self.steps.rest(looked).await;
        }
    }
}
