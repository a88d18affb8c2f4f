//! One line on a terminal that says how far long work has come. Nothing elsewhere, and nothing for work that is short.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, SystemClock};
use tenure_core::escape::Escaped;

use crate::output::brief;

/// Work that takes less time than this has no line.
const DELAY: Duration = Duration::from_secs(1);
/// The least time between two lines.
const REDRAW: Duration = Duration::from_millis(100);

/// The line on stderr. It is written over, and cleared when this is dropped.
pub(crate) struct Progress {
    is_terminal: bool,
    clock: SystemClock,
    begun: Mono,
    drawn: Mutex<Option<Mono>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let clock = SystemClock::new();
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            begun: clock.mono(),
            clock,
            drawn: Mutex::new(None),
        }
    }

    /// Shows a line, made from the time that the work has taken so far, unless one was shown just now.
    pub(crate) fn show(&self, line: impl Fn(Duration) -> String) {
        if !self.is_terminal {
            return;
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.mono();
        let took = now.since(self.begun);
        // One of the calls of `during` comes a little before its time.
        if took + REDRAW < DELAY || drawn.is_some_and(|drawn| now.since(drawn) < REDRAW) {
            return;
        }
        *drawn = Some(now);
        // Nothing can be done when that fails.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", Escaped(line(took)));
    }

    /// Removes the line, so that something else can be printed.
    pub(crate) fn clear(&self) {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner).take();
        if drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Does work, and shows once a second what `line` makes of the time so far.
    pub(crate) async fn during<T>(&self, line: impl Fn(Duration) -> String, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.clock.sleep(DELAY) => self.show(&line),
            }
        }
    }

    /// Does work of which only the time is known.
    pub(crate) async fn of<T>(what: &str, work: impl Future<Output = T>) -> T {
        let line = |took| format!("{what}: {} so far", brief(took));
        Self::new().during(line, work).await
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
