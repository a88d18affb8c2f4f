//! Settings of the rosters of a process.

use std::time::Duration;

use tenure_core::error::{Error, Result};

use super::fallback;
use super::sweeps::SweepIntervals;
use crate::batch::BatchSettings;
use crate::loops::FLOOR;

/// The shortest time for which closed engagements are kept: until then, a repeated call finds its engagement.
pub const MIN_KEPT: Duration = Duration::from_secs(3_600);

/// Settings of the rosters of a process. The settings of a single roster ([`tenure_core::ledger::RosterSettings`]) are
/// in the ledger and equal for all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RostersSettings {
    /// The time-out of a mirror call. A shorter one falls back to the ledger sooner when the hot store hangs; a longer
    /// one rides out short stalls. Together with `ledger_timeout` it bounds the duration of a read.
    pub mirror_timeout: Duration,
    /// The time-out of a ledger read in place of a mirror read, queueing included.
    pub ledger_timeout: Duration,
    /// The most concurrent ledger reads in place of mirror reads. Fewer than its pool has connections: writes need the
    /// rest.
    pub ledger_concurrency: usize,
    /// How often each mirror's stamp is read. Changed settings apply within this time plus a reply.
    pub look: Duration,
    /// How often the ledger is polled and the outbox drained while any mirror is untrusted or any row is not mirrored.
    /// It bounds how long a process serves old data after a change by a process that cannot reach the hot store.
    pub drain: Duration,
    /// The same while there is nothing to do: a change by another process or plain SQL is seen within this time. Each
    /// process costs the database one statement per interval, for any number of rosters.
    pub idle: Duration,
    /// The longest that heartbeats wait to be recorded in the ledger while the hot store is unreachable. A quarter of a
    /// roster's `stale_after` if that is shorter.
    pub note: Duration,
    /// How heartbeats are batched.
    pub heartbeats: BatchSettings,
    /// The most rosters that a process serves.
    pub max_rosters: usize,
    /// Closed engagements are removed from the ledger this long after their last change; `None` keeps them. At least
    /// [`MIN_KEPT`].
    pub keep_engagements: Option<Duration>,
    /// The intervals of the sweeps.
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
            keep_engagements: None,
            sweeps: SweepIntervals::default(),
        }
    }
}

impl RostersSettings {
    /// Rejects settings that cannot work.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
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
        if let Some(kept) = self.keep_engagements.filter(|kept| *kept < MIN_KEPT) {
            return Err(Error::invalid(format!(
                "the setting keep_engagements is {kept:?}; it must be at least {MIN_KEPT:?}"
            )));
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
