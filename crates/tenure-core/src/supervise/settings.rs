//! The settings of a supervisor.

use std::time::Duration;

use crate::error::{Error, Result};

/// The effect of uncertain evidence on a running child. It never starts one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUncertain {
    /// The child runs on until there is evidence against it, or until the deadline of the last positive evidence.
    Keep,
    /// The child is stopped after this long.
    StopAfter(Duration),
}

/// The reaction to a child that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The supervisor exits with the child's code.
    Never,
    /// The child restarts after a non-zero exit code. The pause doubles from `first` to `most`, and starts at `first`
    /// again if the child ran for `most`.
    OnFailure {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        most: Duration,
    },
}

/// The settings of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The effect of uncertain evidence on a running child.
    pub on_uncertain: OnUncertain,
    /// The reaction to a child that ends by itself.
    pub restart: Restart,
    /// The time from a shutdown request to the exit, in total.
    pub stop_budget: Duration,
    /// The maximum wait for the catalog to confirm a deregistration before the drain delay begins.
    pub deregister: Duration,
    /// How long clients may use the service after its deregistration before the child gets TERM. Does not apply after
    /// evidence against the child.
    pub drain: Duration,
    /// The time between TERM and KILL, if the stop budget or a deadline leaves that much.
    pub grace: Duration,
    /// The time between TERM and KILL before a deadline of the evidence; at most `grace`. A short one lets the child run
    /// closer to the deadline.
    pub grace_at_deadline: Duration,
    /// Reserved at the end of the stop budget and before a deadline, for KILL and for confirming that all processes are
    /// gone.
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
            grace_at_deadline: Duration::from_secs(3),
            reserve: Duration::from_millis(300),
        }
    }
}

impl Settings {
    /// Checks that all times fit into the stop budget.
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

    /// How long before a deadline of the evidence the child gets TERM.
    #[must_use]
    pub fn head_start(&self) -> Duration {
        self.grace_at_deadline.min(self.grace).saturating_add(self.reserve)
    }
}
