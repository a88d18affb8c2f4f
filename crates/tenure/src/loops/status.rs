//! The status of a loop.

use std::time::Duration;

use serde::Serialize;
use tenure_core::clock::{Clock, Mono};

use super::LoopSettings;

/// The outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All work done.
    Ok,
    /// Done, except for skipped items.
    Partial,
    /// Failed; retried with backoff.
    Failed,
    /// Panicked; the loop continues with a new body.
    Panicked,
}

impl Outcome {
    /// The value of the metric label `outcome`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }
}

/// The status of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoopStatus {
    /// Its name.
    pub name: String,
    /// The longest time between two turns.
    pub max_interval: Duration,
    /// Completed turns, of any outcome.
    pub runs: u64,
    /// Turns that failed.
    pub failures: u64,
    /// Turns that panicked.
    pub panics: u64,
    /// Panics since the last turn without one.
    pub panics_in_a_row: u32,
    /// Failed or panicked turns since the last successful one.
    pub bad_in_a_row: u32,
    /// Skipped items in total.
    pub skipped: u64,
    /// Wake-ups much later than scheduled: the process or the machine was paused.
    pub pauses: u64,
    /// The outcome of the last turn.
    pub outcome: Option<Outcome>,
    /// The last error. It is kept after a success, for later inspection.
    pub last_error: Option<String>,
    /// Time of the last successful turn, in microseconds of the wall clock.
    pub last_success_wall_micros: Option<u64>,
    /// Time since the last successful turn. Alert on this.
    pub last_success_age: Option<Duration>,
    /// Whether a turn is in progress.
    pub turning: bool,
    /// Time until the next turn; `None` during a turn.
    pub next_in: Option<Duration>,
    /// How long the loop has completed nothing: since its last turn ended or, while work outlasts its turns, since a
    /// part of that work ended.
    pub stuck_for: Duration,
    #[serde(skip)]
    pub(super) last_success: Option<Mono>,
    #[serde(skip)]
    pub(super) finished_at: Mono,
    /// Whether work outlasting the turns is in progress.
    #[serde(skip)]
    pub(super) under_way: bool,
    /// Start time, in microseconds of the wall clock.
    #[serde(skip)]
    pub(super) born_wall_micros: u64,
    /// The time of the next turn. During a turn, the earliest one requested since it began.
    #[serde(skip)]
    pub(super) next_at: Option<Mono>,
    /// The earliest time of the next turn.
    #[serde(skip)]
    pub(super) floor: Mono,
}

impl LoopStatus {
    pub(super) fn of(settings: &LoopSettings, clock: &dyn Clock) -> Self {
        Self {
            name: settings.name.clone(),
            max_interval: settings.max_interval,
            runs: 0,
            failures: 0,
            panics: 0,
            panics_in_a_row: 0,
            bad_in_a_row: 0,
            skipped: 0,
            pauses: 0,
            outcome: None,
            last_error: None,
            last_success_wall_micros: None,
            last_success_age: None,
            turning: false,
            next_in: None,
            stuck_for: Duration::ZERO,
            last_success: None,
            finished_at: clock.mono(),
            under_way: false,
            born_wall_micros: clock.wall_micros(),
            next_at: None,
            floor: clock.mono(),
        }
    }

    /// Records the start of a turn.
    pub(super) fn turns(&mut self) {
        (self.turning, self.next_at) = (true, None);
    }

    /// Records the end of a turn. While work outlasts the turns, only that counts as progress.
    pub(super) fn turned(&mut self, now: Mono) {
        self.turning = false;
        self.runs += 1;
        if !self.under_way {
            self.finished_at = now;
        }
    }

    /// Records when the next turn is due: at `at`, or earlier if that was requested, but not before `floor`.
    pub(super) fn rests(&mut self, at: Mono, floor: Mono) {
        self.floor = floor;
        self.next_at = Some(self.next_at.map_or(at, |sooner| sooner.min(at)).max(floor));
    }

    /// Makes the next turn due at `at` or earlier. Returns whether that shortened a rest.
    pub(super) fn at_latest(&mut self, at: Mono) -> bool {
        let at = at.max(self.floor);
        if self.next_at.is_some_and(|next| next <= at) {
            return false;
        }
        self.next_at = Some(at);
        !self.turning
    }

    /// Fills in the fields that are relative to now.
    pub(super) fn seen_at(mut self, now: Mono) -> Self {
        self.stuck_for = now.since(self.finished_at);
        self.last_success_age = self.last_success.map(|at| now.since(at));
        self.next_in = self.next_at.filter(|_| !self.turning).map(|at| at.since(now));
        self
    }
}
