//! How the rosters of a process are run.

use std::time::Duration;

use tenure_core::error::{Error, Result};

use super::fallback;
use super::sweeps::SweepIntervals;
use crate::batch::BatchSettings;
use crate::loops::FLOOR;

/// How the rosters of a process are run. What providers may do is another matter: the settings of each roster
/// ([`tenure_core::ledger::RosterSettings`]), which are in the ledger and the same for everyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RostersSettings {
    /// After this long a call of the mirror counts as lost. Shorter turns to the ledger sooner when the hot store hangs;
    /// longer rides out its hiccups. With that of the ledger it bounds how long a read takes.
    pub mirror_timeout: Duration,
    /// How long a read of the ledger may take in place of one of the mirror, waiting included.
    pub ledger_timeout: Duration,
    /// How many reads of the ledger run at once in place of those of the mirror. Fewer than its pool has connections:
    /// writes need the rest.
    pub ledger_concurrency: usize,
    /// How often each roster's mirror is asked for its stamp. Settings are obeyed within this and a reply.
    pub look: Duration,
    /// How often the ledger is asked how all rosters stand, and the outbox drained, while any mirror is not believed or any
    /// row not mirrored. It bounds for how long a process believes what another one, which cannot reach the hot store, has
    /// changed.
    pub drain: Duration,
    /// The same while there is nothing to do: what another process or plain SQL changes then is seen within this. A
    /// database sees one statement of each process in this time, however many rosters there are.
    pub idle: Duration,
    /// The longest that heartbeats wait to be written down in the ledger while the hot store is away. A quarter of a
    /// roster's `stale_after` if that is shorter.
    pub note: Duration,
    /// How heartbeats are gathered into batches.
    pub heartbeats: BatchSettings,
    /// The most rosters that are kept in mind.
    pub max_rosters: usize,
    /// How often the sweeps come.
    pub sweeps: SweepIntervals,
}

impl Default for RostersSettings {
    fn default() -> Self {
        Self {
            mirror_timeout: Duration::from_millis(300),
            ledger_timeout: Duration::from_millis(500),
            ledger_concurrency: 8,
            look: Duration::from_millis(400),
            drain: Duration::from_millis(600),
            idle: Duration::from_millis(1_250),
            note: Duration::from_secs(5),
            heartbeats: BatchSettings::default(),
            max_rosters: 10_000,
            sweeps: SweepIntervals::default(),
        }
    }
}

impl RostersSettings {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// `Invalid`, with the setting.
    pub(crate) fn check(&self) -> Result<()> {
        let durations = [
            ("mirror_timeout", self.mirror_timeout),
            ("ledger_timeout", self.ledger_timeout),
            ("look", self.look),
            ("drain", self.drain),
            ("idle", self.idle),
            ("note", self.note),
        ];
        if let Some((name, given)) = durations.into_iter().find(|(_, given)| *given < FLOOR) {
            let message = format!("the setting {name} of the rosters is {given:?}; it must be at least {FLOOR:?}");
            return Err(Error::invalid(message));
        }
        if self.max_rosters == 0 {
            return Err(Error::invalid("the setting max_rosters is 0; it must be at least 1"));
        }
        self.sweeps.check()
    }

    pub(crate) fn fallback(&self) -> fallback::Settings {
        fallback::Settings {
            timeout: self.ledger_timeout,
            concurrency: self.ledger_concurrency,
            ..fallback::Settings::default()
        }
    }
}
