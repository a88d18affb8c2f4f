//! How far a pass over a registry is.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_adopt::Notice;
use tenure_core::clock::{Clock, Mono, SystemClock};

use super::show::{entries_of, owners_of};
use crate::exit::say;
use crate::output::brief;
use crate::progress::Progress;

/// The progress line of a pass, and what is printed beside it.
pub(super) struct PassProgress {
    line: Progress,
    clock: SystemClock,
    stage: Mutex<Stage>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Stage {
    scanned: u64,
    evicted: u64,
    /// When the second look begins.
    again_at: Option<Mono>,
}

impl PassProgress {
    pub(super) fn new() -> Self {
        Self {
            line: Progress::new(),
            clock: SystemClock::new(),
            stage: Mutex::default(),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what a pass did, and prints what a user waits for.
    pub(super) fn note(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Scanned { entries, .. } => {
                let mut stage = self.stage();
                (stage.scanned, stage.again_at) = (stage.scanned + entries, None);
            }
            Notice::Evicted { entries, .. } => self.stage().evicted += entries,
            Notice::Settling { absent, wait } => {
                self.stage().again_at = Some(self.clock.mono() + *wait);
                self.line.clear();
                say(format_args!(
                    "{} without a heartbeat; looking again in {}",
                    owners_of(*absent),
                    brief(*wait)
                ));
            }
            Notice::Quarantined(broken) => {
                self.line.clear();
                say(format_args!("nothing is removed for now: {broken}"));
            }
            _ => {}
        }
    }

    /// Does the work of the pass, with the line.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let done = self.line.during(|took| self.text(took), work).await;
        self.line.clear();
        done
    }

    fn text(&self, took: Duration) -> String {
        let stage = *self.stage();
        text(stage, stage.again_at.map(|at| at.since(self.clock.mono())), took)
    }
}

fn text(stage: Stage, again_in: Option<Duration>, took: Duration) -> String {
    let next = again_in.map_or_else(String::new, |left| format!(", second look in {}", brief(left)));
    let (scanned, evicted) = (entries_of(stage.scanned), stage.evicted);
    format!("{scanned} read, {evicted} evicted{next}: {} so far", brief(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_and_names_the_second_look() {
        let mut stage = Stage {
            scanned: 1_200,
            ..Stage::default()
        };
        let (took, left) = (Duration::from_secs(12), Duration::from_secs(18));
        let line = text(stage, Some(left), took);
        assert_eq!(line, "1200 entries read, 0 evicted, second look in 18s: 12s so far");
        stage.evicted = 30;
        assert_eq!(text(stage, None, took), "1200 entries read, 30 evicted: 12s so far");
    }
}
