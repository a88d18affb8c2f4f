//! How much waits for the disk, of all groups together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Outcome, Result};

/// How many rows and events may wait for the disk.
const MOST_ROWS: usize = 200_000;
/// About how many bytes they may be.
const MOST_BYTES: usize = 64 << 20;

/// What waits for the disk.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    rows: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Replaces the share of one group.
    pub(super) fn replace(&self, before: &mut (usize, usize), now: (usize, usize)) {
        let add = |total: &AtomicUsize, before: usize, now: usize| {
            total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        };
        add(&self.rows, before.0, now.0);
        add(&self.bytes, before.1, now.1);
        *before = now;
    }

    /// Refuses another change when too much waits.
    ///
    /// # Errors
    /// `Unavailable`, with nothing changed.
    pub(super) fn check(&self) -> Result<()> {
        let (rows, bytes) = (self.rows.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        if rows < MOST_ROWS && bytes < MOST_BYTES {
            return Ok(());
        }
        let message = format!(
            "{rows} rows ({} MiB) wait for the disk of the store, at most {MOST_ROWS} ({} MiB) may; look at the disk, and \
             retry later",
            bytes >> 20,
            MOST_BYTES >> 20
        );
        Err(Error::unavailable(message, Outcome::Unchanged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_is_bounded_in_rows_and_in_bytes() {
        let backlog = Backlog::default();
        let (mut a, mut b) = ((0, 0), (0, 0));
        backlog.replace(&mut a, (MOST_ROWS - 1, 10));
        assert!(backlog.check().is_ok());
        backlog.replace(&mut b, (1, 10));
        let refused = backlog.check().unwrap_err();
        assert_eq!(refused.outcome(), Outcome::Unchanged);
        backlog.replace(&mut a, (0, 0));
        assert!(backlog.check().is_ok());
        backlog.replace(&mut b, (1, MOST_BYTES));
        assert!(backlog.check().is_err());
        backlog.replace(&mut b, (0, 0));
        assert!(backlog.check().is_ok());
    }
}
