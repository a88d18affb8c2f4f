//! What can be chosen about a supervisor.

use std::time::Duration;

use crate::error::{Error, Result};

/// What unclear evidence means for a child that runs. It never starts one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUncertain {
    /// It goes on until there is evidence against it, or until the deadline of the last evidence for it.
    Keep,
    /// It is stopped when the evidence has been unclear for this long.
    StopAfter(Duration),
}

/// What happens when the child ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The supervisor ends with its exit code.
    Never,
    /// After an exit code other than 0 it is started again, after a pause that doubles from `first` to `most`. A child
    /// that ran for `most` begins at `first` again.
    OnFailure {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        most: Duration,
    },
}

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What unclear evidence means for a child that runs.
    pub on_uncertain: OnUncertain,
    /// What happens when the child ends by itself.
    pub restart: Restart,
    /// From the wish to end to the end, everything included.
    pub stop_budget: Duration,
    /// How long a shutdown waits for the catalog's word that the service is gone before the drain delay begins anyway.
    pub deregister: Duration,
    /// How long others may still use what they found in the catalog, before the child is told to end. Not after evidence
    /// against it.
    pub drain: Duration,
    /// How long the child has between TERM and KILL, if the stop budget or a deadline leaves that much.
    pub grace: Duration,
    /// Kept free at the end of the stop budget, and before a deadline, for KILL and for seeing that nothing is left.
    pub reserve: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            on_uncertain: OnUncertain::Keep,
            restart: Restart::Never,
            // Nomad kills after 5 s.
            stop_budget: Duration::from_millis(4_500),
            deregister: Duration::from_secs(1),
            drain: Duration::from_millis(500),
            grace: Duration::from_secs(3),
            reserve: Duration::from_millis(300),
        }
    }
}

impl Settings {
    /// Checks that everything fits into the stop budget.
    ///
    /// # Errors
    /// `Invalid`, with the numbers.
    pub fn check(&self) -> Result<()> {
        let before_term = self.deregister.saturating_add(self.drain).saturating_add(self.reserve);
        if before_term >= self.stop_budget {
            return Err(Error::invalid(format!(
                "the stop budget of {:?} leaves no time for the child to end: {:?} for deregistering, {:?} for draining \
                 and {:?} for a KILL come out of it",
                self.stop_budget, self.deregister, self.drain, self.reserve
            )));
        }
        match self.restart {
            Restart::OnFailure { first, most } if first.is_zero() || first > most => Err(Error::invalid(format!(
                "the pause before a restart cannot grow from {first:?} to {most:?}"
            ))),
            _ => Ok(()),
        }
    }

    /// How long before a deadline of the evidence the child is told to end.
    #[must_use]
    pub fn head_start(&self) -> Duration {
        self.grace.saturating_add(self.reserve)
    }
}
