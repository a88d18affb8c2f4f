//! How far a walk over a keyspace is.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_adopt::{WalkNotice, text};

use crate::exit::say;
use crate::output::brief;
use crate::progress::Progress;

/// The width of the bar in characters.
const BAR: usize = 20;

/// How many sessions are named whose field is not a time.
const NAMED: usize = 3;

/// The progress line of a walk, and what is printed beside it.
pub(super) struct WalkProgress {
    verbose: bool,
    line: Progress,
    /// The first sessions whose field is not a time.
    invalid: Mutex<Vec<String>>,
}

impl WalkProgress {
    pub(super) fn new(verbose: bool) -> Self {
        Self {
            verbose,
            line: Progress::new(),
            invalid: Mutex::default(),
        }
    }

    pub(super) fn note(&self, notice: &WalkNotice<'_>) {
        match notice {
            WalkNotice::Page {
                scanned,
                changed,
                share,
            } => self.line.show(|took| line(*scanned, *changed, *share, took)),
            WalkNotice::Difference(difference) if self.verbose => {
                self.line.clear();
                say(difference);
            }
            WalkNotice::Invalid { id, value } => {
                let mut invalid = self.invalid.lock().unwrap_or_else(PoisonError::into_inner);
                if invalid.len() < NAMED {
                    invalid.push(format!("session {}: {:?}", text(id), text(value)));
                }
            }
            WalkNotice::Restarted(error) => {
                self.line.clear();
                say(format_args!("the scan starts again: {error}"));
            }
            _ => {}
        }
    }

    /// Removes the line, and names what was left alone.
    pub(super) fn finish(&self) {
        self.line.clear();
        let invalid = self.invalid.lock().unwrap_or_else(PoisonError::into_inner);
        invalid
            .iter()
            .for_each(|named| say(format_args!("not a time: {named}")));
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
    fn progress_line_shows_share_and_remaining_time() {
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
