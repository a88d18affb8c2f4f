//! Log lines about single members, of which a large fleet would write too many.
//!
//! The first of a kind in a group are told at INFO, one line each. What comes above that within a few seconds is told at DEBUG,
//! and one line at INFO says how many these were. The events of the group have all of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::Group;

/// How many lines of a kind a group gets in one window.
const LINES: u64 = 20;
/// How long a window is, from its first line on.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the lines of one process.
#[derive(Debug, Default)]
pub struct CrowdLog(Mutex<BTreeMap<(Group, &'static str), Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Mono,
    count: u64,
}

impl CrowdLog {
    /// Counts what happened in a group (`joined`, `lapsed`). Answers whether it has a line at INFO of its own.
    pub fn admits(&self, group: &Group, what: &'static str, now: Mono) -> bool {
        let mut windows = self.windows();
        if let Some(window) = windows.get_mut(&(group.clone(), what)) {
            if now.since(window.since) < WINDOW {
                window.count += 1;
                return window.count <= LINES;
            }
            tell(group, what, window.count);
        }
        let window = Window { since: now, count: 1 };
        windows.insert((group.clone(), what), window);
        true
    }

    /// Tells how many had no line, where a window is over. To be called every second or so.
    pub fn flush(&self, now: Mono) {
        self.windows().retain(|(group, what), window| {
            let is_open = now.since(window.since) < WINDOW;
            if !is_open {
                tell(group, what, window.count);
            }
            is_open
        });
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<(Group, &'static str), Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(group: &Group, what: &str, count: u64) {
    let more = count.saturating_sub(LINES);
    if more > 0 {
        tracing::info!(%group, what, more, "more of these; each is a line at debug level, and an event");
    }
}

/// The same line at one of two levels.
#[macro_export]
#[doc(hidden)]
macro_rules! crowd_line {
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
    use crate::testing::{Ears, secs};

    fn at(s: u64) -> Mono {
        Mono::from_origin(secs(s))
    }

    #[test]
    fn a_crowd_gets_twenty_lines_and_a_count() {
        let ears = Ears::default();
        let _listening = ears.listen();
        let (log, one, other) = (
            CrowdLog::default(),
            Group::new("one").unwrap(),
            Group::new("other").unwrap(),
        );
        let admitted = (0..1_000).filter(|_| log.admits(&one, "joined", at(0))).count();
        assert_eq!(admitted, 20);
        assert!(log.admits(&one, "lapsed", at(1)), "another kind");
        assert!(log.admits(&other, "joined", at(1)), "another group");
        log.flush(at(9));
        assert_eq!(ears.lines("more of these"), 0, "the window is open");
        log.flush(at(10));
        assert_eq!(ears.lines("more=980"), 1);
        log.flush(at(20));
        assert_eq!(ears.lines("more of these"), 1, "few need no count");
        assert!(log.admits(&one, "joined", at(21)));
    }

    #[test]
    fn a_crowd_that_goes_on_is_told_of_once_a_window() {
        let ears = Ears::default();
        let _listening = ears.listen();
        let (log, group) = (CrowdLog::default(), Group::new("g").unwrap());
        for n in 0..300 {
            log.admits(&group, "joined", Mono::from_origin(secs(1) / 10 * n));
        }
        log.flush(at(40));
        assert_eq!(ears.lines("more=80"), 3, "a hundred in each of three windows");
    }
}
