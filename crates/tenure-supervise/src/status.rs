//! The status of a supervisor, for people, health checks and its child.

mod listen;

use serde::Serialize;
use tenure_core::StoreTime;
use tenure_core::clock::Clock;
use tenure_core::supervise::{Evidence, Primacy, Stage, Supervisor};

use crate::run::Registration;

pub use listen::{StatusServer, listen};

/// A snapshot. `--status-file` and `--status-listen` show it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The stage: `waiting`, `backing_off`, `starting`, `running`, `draining`, `stopping`, `leaving`, `over`.
    pub state: &'static str,
    /// The latest evidence of leadership: `primary`, `replica` or `uncertain`.
    pub leadership: &'static str,
    /// Why the evidence is uncertain.
    pub reason: Option<String>,
    /// How often the child was started.
    pub runs: u64,
    /// The process id of the child.
    pub pid: Option<i32>,
    /// The term under which this node leads.
    pub term: Option<u64>,
    /// The fencing token of the lease.
    pub token: Option<u64>,
    /// Until when this node leads if no renewal succeeds: a UTC time by this machine's clock. Work reserved for the
    /// primary must stop by then.
    pub deadline: Option<String>,
    /// Whether the service is in the catalog, as far as is known here: it was passing, and its removal is not
    /// confirmed.
    pub registered: bool,
    /// The status of the catalog.
    pub catalog: String,
}

impl Status {
    /// Takes a snapshot of a machine.
    #[must_use]
    pub fn of(machine: &Supervisor, pid: Option<i32>, registration: &impl Registration, clock: &dyn Clock) -> Self {
        let (leadership, reason, primacy) = match machine.evidence() {
            Evidence::Primary(primacy) => ("primary", None, *primacy),
            Evidence::Replica => ("replica", None, Primacy::default()),
            Evidence::Uncertain(why) => ("uncertain", Some(why.clone()), Primacy::default()),
        };
        let deadline = machine.deadline().map(|at| {
            let left = at.since(clock.mono()).as_micros();
            let wall = clock
                .wall_micros()
                .saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
            // Rounded down to the second: the two clocks are read one after the other, and the jitter must not count as
            // a change.
            StoreTime::from_micros(wall - wall % 1_000_000).to_string()
        });
        Self {
            state: machine.stage().as_str(),
            leadership,
            reason,
            runs: machine.run().0,
            pid,
            term: primacy.term.map(|term| term.get()),
            token: primacy.token.map(|token| token.get()),
            deadline,
            registered: registration.is_listed(),
            catalog: registration.status(),
        }
    }

    /// The supervisor panicked and ended. `is_gone`: no process of the child is left.
    pub(crate) fn broken(&mut self, is_gone: bool) {
        (self.state, self.leadership) = (Stage::Over.as_str(), "uncertain");
        self.reason = Some("the supervisor panicked".to_owned());
        self.registered = false;
        self.pid = self.pid.filter(|_| !is_gone);
    }

    /// As JSON, with a trailing newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Serialization of these types cannot fail.
        let mut json = serde_json::to_string(self).unwrap_or_default();
        json.push('\n');
        json
    }
}
