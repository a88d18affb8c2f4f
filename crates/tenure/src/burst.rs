//! Rate limit for log lines about single members, so that a large fleet does not flood the log.
//!
//! The first lines of a kind in a group are logged at INFO. Further ones within a few seconds are logged at DEBUG, and
//! one INFO line gives their number. The events of the group contain all of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::Group;

/// INFO lines of one kind per group and window.
const LINES: u64 = 20;
/// The length of a window, counted from its first line.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the log lines of one process.
#[derive(Debug, Default)]
pub struct BurstLog(Mutex<BTreeMap<(Group, &'static str), Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Mono,
    count: u64,
}

impl BurstLog {
    /// Counts an occurrence (`joined`, `lapsed`) in a group. Returns whether to log it at INFO.
    pub fn admits(&self, group: &Group, what: &'static str, now: Mono) -> bool {
        let mut windows = self.windows();
        if let Some(window) = windows.get_mut(&(group.clone(), what)) {
            if now.since(window.since) < WINDOW {
                window.count += 1;
                return window.count <= LINES;
            }
            log_suppressed(group, what, window.count);
        }
        let window = Window { since: now, count: 1 };
        windows.insert((group.clone(), what), window);
        true
    }

    /// Logs the number of suppressed lines of each window that has ended. Call it about once a second.
    pub fn flush(&self, now: Mono) {
        self.windows().retain(|(group, what), window| {
            let is_open = now.since(window.since) < WINDOW;
            if !is_open {
                log_suppressed(group, what, window.count);
            }
            is_open
        });
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<(Group, &'static str), Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_suppressed(group: &Group, what: &str, count: u64) {
    let more = count.saturating_sub(LINES);
    if more > 0 {
        tracing::info!(%group, what, more, "more of these; see the debug log or the events");
    }
}

/// Logs a line at INFO if admitted, else at DEBUG.
#[macro_export]
#[doc(hidden)]
macro_rules! burst_line {
    ($admitted:expr, $($line:tt)+) => {
        if $admitted {
            ::tracing::info!($($line)+);
        } else {
            ::tracing::debug!($($line)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Telemetry, secs};

    fn at(s: u64) -> Mono {
        Mono::from_origin(secs(s))
    }

    #[test]
    fn a_burst_gets_twenty_lines_and_a_count() {
        let telemetry = Telemetry::default();
        let _listening = telemetry.listen();
        let (log, one, other) = (
            BurstLog::default(),
            Group::new("one").unwrap(),
            Group::new("other").unwrap(),
        );
        let admitted = (0..1_000).filter(|_| log.admits(&one, "joined", at(0))).count();
        assert_eq!(admitted, 20);
        assert!(log.admits(&one, "lapsed", at(1)), "another kind");
        assert!(log.admits(&other, "joined", at(1)), "another group");
        log.flush(at(9));
        assert_eq!(telemetry.lines("more of these"), 0, "the window is open");
        log.flush(at(10));
        assert_eq!(telemetry.lines("more=980"), 1);
        log.flush(at(20));
        assert_eq!(telemetry.lines("more of these"), 1, "a small window is not counted");
        assert!(log.admits(&one, "joined", at(21)));
    }

    #[test]
    fn a_long_burst_is_counted_once_per_window() {
        let telemetry = Telemetry::default();
        let _listening = telemetry.listen();
        let (log, group) = (BurstLog::default(), Group::new("g").unwrap());
        for n in 0..300 {
            log.admits(&group, "joined", Mono::from_origin(secs(1) / 10 * n));
        }
        log.flush(at(40));
        assert_eq!(telemetry.lines("more=80"), 3, "a hundred in each of three windows");
    }
}
