//! What a loop did so far.

use std::time::Duration;

use serde::Serialize;
use tenure_core::clock::{Clock, Mono};

use super::LoopSettings;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All done.
    Ok,
    /// Done, but for items that were skipped.
    Partial,
    /// Failed; it is tried again with backoff.
    Failed,
    /// Panicked; the loop goes on with a fresh body.
    Panicked,
}

impl Outcome {
    /// The value of the label `outcome`.
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

/// A loop as its supervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoopStatus {
    /// Its name.
    pub name: String,
    /// The longest time between two turns.
    pub max_interval: Duration,
    /// Turns that ended, in whatever way.
    pub runs: u64,
    /// Turns that failed.
    pub failures: u64,
    /// Turns that panicked.
    pub panics: u64,
    /// Panics since the last turn that did not panic.
    pub panics_in_a_row: u32,
    /// Failed or panicked turns since the last good one.
    pub bad_in_a_row: u32,
    /// Items skipped in all.
    pub skipped: u64,
    /// How often it woke much later than it wanted: the process or the machine was paused.
    pub pauses: u64,
    /// How the last turn ended.
    pub outcome: Option<Outcome>,
    /// What went wrong last. Kept after a success, for whoever comes to look later.
    pub last_error: Option<String>,
    /// When a turn last ended well, in microseconds of the wall clock.
    pub last_success_wall_micros: Option<u64>,
    /// How long ago that was. The number to alert on.
    pub last_success_age: Option<Duration>,
    /// Whether it is in a turn now.
    pub turning: bool,
    /// How long until its next turn, unless it is in one.
    pub next_in: Option<Duration>,
    /// For how long it has finished nothing: since its last turn ended, or, while work that outlasts its turns is under
    /// way, since the last piece of that work did.
    pub stuck_for: Duration,
    #[serde(skip)]
    pub(super) last_success: Option<Mono>,
    #[serde(skip)]
    pub(super) finished_at: Mono,
    /// Whether work that outlasts its turns is under way.
    #[serde(skip)]
    pub(super) under_way: bool,
    /// When it was started, in microseconds of the wall clock.
    #[serde(skip)]
    pub(super) born_wall_micros: u64,
    #[serde(skip)]
    pub(super) next_at: Option<Mono>,
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
        }
    }

    /// A turn ended. While work that outlasts it is under way, only that counts as progress.
    pub(super) fn turned(&mut self, now: Mono) {
        self.turning = false;
        self.runs += 1;
        if !self.under_way {
            self.finished_at = now;
        }
    }

    /// Fills in what depends on when one looks.
    pub(super) fn seen_at(mut self, now: Mono) -> Self {
        self.stuck_for = now.since(self.finished_at);
        self.last_success_age = self.last_success.map(|at| now.since(at));
        self.next_in = self.next_at.filter(|_| !self.turning).map(|at| at.since(now));
        self
    }
}
