//! Whether calls are served: by all means, without writes, or not at all.

use std::sync::Arc;

use tokio::sync::watch;

use super::disk::{Lost, copy};
use crate::error::{Error, Outcome, Result};
use crate::store::Health;

/// How calls are served now.
#[derive(Debug, Clone)]
enum Mode {
    /// All of them.
    All,
    /// Beats and reads; a change is tried out first. The last commit failed, for this reason.
    NoWrites(Arc<Error>),
    /// None. The disk cannot be trusted any more.
    Broken(Arc<Error>),
    /// None. The store was closed.
    Closed,
}

/// How calls are served, for all that want to know.
#[derive(Debug)]
pub(super) struct Service(watch::Sender<Mode>);

impl Default for Service {
    fn default() -> Self {
        Self(watch::Sender::new(Mode::All))
    }
}

impl Service {
    /// Refuses when nothing is served.
    pub(super) fn check(&self) -> Result<()> {
        self.takes_writes().map(drop)
    }

    /// Whether a change may be applied without a trial.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) fn takes_writes(&self) -> Result<bool> {
        match &*self.0.borrow() {
            Mode::All => Ok(true),
            Mode::NoWrites(_) => Ok(false),
            Mode::Broken(error) => Err(copy(error, Outcome::Unchanged)),
            Mode::Closed => Err(closed()),
        }
    }

    /// Whether changes are refused because the last commit failed.
    pub(super) fn refuses_writes(&self) -> bool {
        matches!(&*self.0.borrow(), Mode::NoWrites(_))
    }

    /// Notes that a commit succeeded. Answers whether writes were refused before.
    pub(super) fn recover(&self) -> bool {
        self.change(|mode| match mode {
            Mode::NoWrites(_) => Some(Mode::All),
            _ => None,
        })
    }

    /// Refuses writes. Answers whether they were taken before.
    pub(super) fn refuse_writes(&self, error: &Arc<Error>) -> bool {
        let was_up = matches!(self.mode(), Mode::All);
        self.change(|mode| match mode {
            Mode::All | Mode::NoWrites(_) => Some(Mode::NoWrites(Arc::clone(error))),
            _ => None,
        });
        was_up
    }

    /// Refuses everything, for good. Answers whether it was served before.
    pub(super) fn break_down(&self, error: &Arc<Error>) -> bool {
        self.change(|mode| match mode {
            Mode::Broken(_) => None,
            _ => Some(Mode::Broken(Arc::clone(error))),
        })
    }

    /// Refuses everything, because the store is closed.
    pub(super) fn close(&self) {
        self.change(|mode| match mode {
            Mode::Broken(_) => None,
            _ => Some(Mode::Closed),
        });
    }

    /// Why nothing is served any more, if the disk cannot be trusted.
    pub(super) fn broken(&self) -> Option<Lost> {
        match self.mode() {
            Mode::Broken(error) => Some(Lost::for_good(&error)),
            _ => None,
        }
    }

    /// Waits until nothing is served any more because the disk cannot be trusted. Never ends when the store is closed before.
    pub(super) async fn until_broken(&self) -> Error {
        let mut modes = self.0.subscribe();
        let broken = modes.wait_for(|mode| matches!(mode, Mode::Broken(_))).await;
        let error = broken.ok().and_then(|mode| match &*mode {
            Mode::Broken(error) => Some(copy(error, Outcome::Unchanged)),
            _ => None,
        });
        match error {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    pub(super) fn health(&self) -> Health {
        let reason = match self.mode() {
            Mode::All => return Health::Up,
            Mode::NoWrites(error) | Mode::Broken(error) => error.chain(),
            Mode::Closed => closed().to_string(),
        };
        Health::Down { reason }
    }

    fn mode(&self) -> Mode {
        self.0.borrow().clone()
    }

    fn change(&self, change: impl FnOnce(&Mode) -> Option<Mode>) -> bool {
        self.0.send_if_modified(|mode| match change(mode) {
            Some(new) => {
                *mode = new;
                true
            }
            None => false,
        })
    }
}

/// What calls are answered once the store is closed.
pub(super) fn closed() -> Error {
    Error::unavailable("the store was closed", Outcome::Unchanged)
}
