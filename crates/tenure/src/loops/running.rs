//! A running loop.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, Mono, jitter};
use tenure_core::error::Result;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{FIRST_BACKOFF, FLOOR, Inner, LoopBody, LoopEntry, LoopStatus, Outcome, Probe, Turn};
use crate::meters;

/// A wake-up this much later than scheduled means that the process or the machine was paused.
const PAUSE: Duration = Duration::from_secs(2);
/// After a turn a loop rests for this many times as long as the turn took, at most for [`FLOOR`]: a turn looks at every group.
const SHARE: u32 = 100;

/// The parts of a loop. They do not keep the supervisor alive.
pub(super) struct Running {
    clock: Arc<dyn Clock>,
    probe: Option<Probe>,
    stop: CancellationToken,
    escalated: watch::Sender<Option<String>>,
    entry: Arc<LoopEntry>,
}

impl Running {
    pub(super) fn new(inner: &Inner, entry: Arc<LoopEntry>) -> Self {
        Self {
            clock: Arc::clone(&inner.clock),
            probe: inner.probe.clone(),
            stop: inner.stop.clone(),
            escalated: inner.escalated.clone(),
            entry,
        }
    }

    /// Boxed, because each instantiation would compile a copy of this and of the runtime's code.
    pub(super) async fn run(self, mut make: Box<dyn FnMut() -> Box<dyn LoopBody> + Send>) {
        let settings = &self.entry.settings;
        // Soon, but not in step with other processes that started at the same time.
        let mut wait = jitter(&*self.clock, settings.max_interval.min(FIRST_BACKOFF * 5) / 2, 100);
        let mut pace = FLOOR;
        let mut body: Option<Box<dyn LoopBody>> = None;
        self.export();
        while self.rest(wait, pace).await {
            // Repeated, because the recorder may be installed later.
            self.export();
            let began = self.clock.mono();
            self.entry.status().turns();
            let turned = AssertUnwindSafe(async {
                if let Some(probe) = &self.probe {
                    probe(&settings.name);
                }
                body.get_or_insert_with(&mut make).turn().await
            })
            .catch_unwind()
            .await;
            let took = self.clock.mono().since(began);
            pace = took.saturating_mul(SHARE).min(FLOOR).max(settings.pace);
            wait = match turned {
                Ok(done) => self.ended(done),
                Err(panic) => {
                    body = None;
                    self.panicked(&*panic)
                }
            };
        }
    }

    /// Exports the time of the last success, or of the start: an alert on its age must also see a loop that never
    /// succeeded.
    fn export(&self) {
        let status = self.entry.status();
        let wall = status.last_success_wall_micros.unwrap_or(status.born_wall_micros);
        meters::begin_sweep(&status.name);
        meters::sweep_succeeded(&status.name, wall);
    }

    /// Sleeps until the next turn or a wake-up. Returns `false` on shutdown.
    async fn rest(&self, wait: Duration, pace: Duration) -> bool {
        let asleep_at = self.clock.mono();
        self.entry.status().rests(asleep_at + wait, asleep_at + pace);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return false,
            () = self.due() => {}
            () = self.woken() => {}
        }
        !self.stop.is_cancelled()
    }

    /// Sleeps until the next turn is due. [`Waker::wake_at`](super::Waker::wake_at) may make that earlier.
    async fn due(&self) {
        loop {
            let now = self.clock.mono();
            let at = self.entry.status().next_at.unwrap_or(now);
            tokio::select! {
                biased;
                () = self.clock.sleep(at.since(now)) => return self.note_pause(at),
                () = self.entry.sooner.notified() => {}
            }
        }
    }

    /// A wake-up counts only after the floor has passed, so that frequent wake-ups cannot occupy a core.
    async fn woken(&self) {
        self.clock.sleep(FLOOR).await;
        self.entry.wake.notified().await;
    }

    fn note_pause(&self, wanted: Mono) {
        let late = self.clock.mono().since(wanted);
        if late > PAUSE {
            self.entry.status().pauses += 1;
            tracing::warn!(sweep = %self.entry.settings.name, late_ms = millis(late), "the loop was paused");
        }
    }

    fn ended(&self, done: Result<Turn>) -> Duration {
        let name = &self.entry.settings.name;
        let mut status = self.entry.status();
        status.turned(self.clock.mono());
        if let Ok(turn) = done
            && turn.stalled
        {
            status.skipped += turn.skipped;
            return self.wait_after(&status, turn);
        }
        status.panics_in_a_row = 0;
        let (outcome, wait) = match done {
            Ok(turn) => {
                if status.bad_in_a_row > 0 {
                    tracing::info!(sweep = %name, bad_turns = status.bad_in_a_row, "the loop has recovered");
                }
                let wall = self.clock.wall_micros();
                status.bad_in_a_row = 0;
                status.skipped += turn.skipped;
                status.last_success = Some(self.clock.mono());
                status.last_success_wall_micros = Some(wall);
                meters::sweep_succeeded(name, wall);
                let outcome = if turn.skipped == 0 {
                    Outcome::Ok
                } else {
                    Outcome::Partial
                };
                (outcome, self.wait_after(&status, turn))
            }
            Err(error) => {
                status.failures += 1;
                status.bad_in_a_row = status.bad_in_a_row.saturating_add(1);
                status.last_error = Some(error.chain());
                // Log the first failure; the rest of an outage is only counted.
                if status.bad_in_a_row == 1 {
                    tracing::warn!(sweep = %name, error = %error.chain(), "a turn failed; retrying");
                }
                (Outcome::Failed, self.backoff(status.bad_in_a_row))
            }
        };
        status.outcome = Some(outcome);
        meters::sweep_ran(name, outcome.as_str());
        wait
    }

    fn wait_after(&self, status: &LoopStatus, turn: Turn) -> Duration {
        let max = self.entry.settings.max_interval;
        // The first full wait is a random part of the interval, the phase of this process.
        let longest = if status.runs == 1 {
            jitter(&*self.clock, max / 2, 100)
        } else {
            jitter(&*self.clock, max, 10)
        };
        turn.next.map_or(longest, |next| next.min(longest))
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        let settings = &self.entry.settings;
        let message = message_of(panic);
        let mut status = self.entry.status();
        status.turned(self.clock.mono());
        status.panics += 1;
        status.panics_in_a_row = status.panics_in_a_row.saturating_add(1);
        status.bad_in_a_row = status.bad_in_a_row.saturating_add(1);
        status.outcome = Some(Outcome::Panicked);
        status.last_error = Some(format!("panicked: {message}"));
        let in_a_row = status.panics_in_a_row;
        tracing::error!(sweep = %settings.name, panic = message, in_a_row, "a turn panicked; the loop is restarted");
        meters::sweep_ran(&settings.name, Outcome::Panicked.as_str());
        meters::sweep_panicked(&settings.name);
        if in_a_row >= settings.escalate_after {
            self.escalated.send_replace(Some(settings.name.clone()));
        }
        self.backoff(status.bad_in_a_row)
    }

    /// The backoff doubles from [`FIRST_BACKOFF`] to the maximal interval; at least half of it is waited.
    fn backoff(&self, bad_in_a_row: u32) -> Duration {
        let doubled = FIRST_BACKOFF.saturating_mul(1 << bad_in_a_row.saturating_sub(1).min(16));
        let longest = doubled.min(self.entry.settings.max_interval);
        jitter(&*self.clock, longest.mul_f64(0.75), 33).max(FLOOR)
    }
}

pub(super) fn message_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
