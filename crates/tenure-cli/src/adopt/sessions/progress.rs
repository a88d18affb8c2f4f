//! How far a walk over a keyspace is: one line on a terminal that is written over, and nothing elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_adopt::WalkNotice;
use tenure_core::clock::{Clock, Mono, SystemClock};

use crate::exit::say;
use crate::output::brief;

/// The least time between two lines.
const REDRAW: Duration = Duration::from_millis(100);
/// How many characters the bar has.
const BAR: usize = 20;

/// The line, and what is told besides it.
pub(super) struct Progress {
    verbose: bool,
    terminal: bool,
    clock: SystemClock,
    begun: Mono,
    drawn: Mutex<Option<Mono>>,
}

impl Progress {
    pub(super) fn new(verbose: bool) -> Self {
        let clock = SystemClock::new();
        Self {
            verbose,
            terminal: std::io::stderr().is_terminal(),
            begun: clock.mono(),
            clock,
            drawn: Mutex::new(None),
        }
    }

    /// Takes note of what happened.
    pub(super) fn note(&self, notice: &WalkNotice<'_>) {
        match notice {
            WalkNotice::Page {
                scanned,
                changed,
                share,
            } => self.draw(*scanned, *changed, *share),
            WalkNotice::Difference(difference) if self.verbose => {
                self.clear();
                say(difference);
            }
            WalkNotice::Restarted(error) => {
                self.clear();
                say(format_args!("the scan begins anew: {error}"));
            }
            _ => {}
        }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(&self) {
        self.clear();
    }

    fn draw(&self, scanned: u64, changed: u64, share: f64) {
        if !self.terminal {
            return;
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.mono();
        if drawn.is_some_and(|drawn| now.since(drawn) < REDRAW) {
            return;
        }
        *drawn = Some(now);
        let line = line(scanned, changed, share, now.since(self.begun));
        // Nothing can be done when that fails.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    fn clear(&self) {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner).take();
        if drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(scanned: u64, changed: u64, share: f64, took: Duration) -> String {
    let share = share.clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a short bar"
    )]
    let (done, percent) = ((share * BAR as f64) as usize, (share * 100.0) as u64);
    let bar = "#".repeat(done) + &"-".repeat(BAR - done);
    let left = (share > 0.02).then(|| brief(took.mul_f64((1.0 - share) / share)));
    let left = left.map_or_else(String::new, |left| format!(", {left} left"));
    format!("[{bar}] {percent:3} %  {scanned} sessions, {changed} to mend{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_far_it_is_and_how_long_it_takes() {
        assert_eq!(
            line(1_000, 20, 0.5, Duration::from_secs(30)),
            "[##########----------]  50 %  1000 sessions, 20 to mend, 30s left"
        );
        assert_eq!(
            line(0, 0, 0.0, Duration::ZERO),
            "[--------------------]   0 %  0 sessions, 0 to mend"
        );
        assert!(line(9, 9, 7.0, Duration::from_secs(1)).starts_with("[####################] 100 %"));
    }
}
