//! Reads a keyspace, a hash or a sorted set page by page, with a pause after each page and never with `KEYS`.

use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::time::micros;
use tenure_valkey::connection::{Connection, Reader};

use crate::pattern::KeyPattern;

/// The most by which a pause that was too long shortens the next ones. More is not the timer's delay but the machine's.
const MOST_CREDIT: Duration = Duration::from_millis(4);

/// The speed of a scan, which leaves the store time for other clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How many elements a page asks for. It may return more or none.
    pub(crate) page: u64,
    /// The pause after a page of that size; proportionally longer after a larger one.
    pub(crate) rest: Duration,
}

impl Pace {
    fn rest_after(self, elements: u64) -> Duration {
        let page = self.page.max(1);
        Duration::from_micros(micros(self.rest).saturating_mul(elements.max(page)) / page)
    }
}

/// What to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanSource {
    /// The keys that match a pattern.
    Keys(KeyPattern),
    /// The hash with this name: alternating fields and values.
    Hash(Vec<u8>),
    /// The sorted set with this name: its members.
    SortedSet(Vec<u8>),
}

/// A scan, page by page. An element may occur more than once. A scan is complete only over one connection: a cursor is
/// invalid on another server, or after a restart.
pub(crate) struct Scan {
    connection: Connection,
    source: ScanSource,
    pace: Pace,
    cursor: Option<String>,
    /// The size of the last page; `None` before the first one.
    last: Option<u64>,
    /// How much longer than planned the last pause was.
    credit: Duration,
    generation: Option<u64>,
    is_cut: bool,
}

impl Scan {
    pub(crate) fn begin(connection: &Connection, source: ScanSource, pace: Pace) -> Self {
        Self {
            connection: connection.clone(),
            source,
            pace,
            cursor: Some("0".to_owned()),
            last: None,
            credit: Duration::ZERO,
            generation: connection.generation(),
            is_cut: false,
        }
    }

    /// Continues with another source. Both count as one scan.
    pub(crate) fn continue_with(&mut self, source: ScanSource) {
        (self.source, self.cursor, self.last) = (source, Some("0".to_owned()), None);
    }

    /// Whether the connection changed since the first page.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether the last page was reached.
    pub(crate) fn is_finished(&self) -> bool {
        self.cursor.is_none()
    }

    /// The next page, after a pause; `None` after the last one.
    ///
    /// # Errors
    /// Those of the store, and `Unavailable` if the client has reconnected since the start.
    pub(crate) async fn page(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        if let Some(elements) = self.last {
            let pause = self.pace.rest_after(elements);
            rest(&**self.connection.clock(), pause, &mut self.credit).await;
        }
        let (cursor, count) = (cursor.as_bytes(), self.pace.page.to_string());
        let (connection, count) = (&self.connection, count.as_bytes());
        let read = |reply: &mut Reader| {
            let mut page = reply.array()?;
            Ok((page.text()?, page.array()?.all_bytes()?))
        };
        let (next, mut elements) = match &self.source {
            ScanSource::Keys(pattern) => {
                let glob = pattern.glob();
                let words: &[&[u8]] = &[b"SCAN", cursor, b"MATCH", &glob, b"COUNT", count];
                connection.ask(words, read).await?
            }
            ScanSource::Hash(key) => connection.ask(&[b"HSCAN", key, cursor, b"COUNT", count], read).await?,
            ScanSource::SortedSet(key) => connection.ask(&[b"ZSCAN", key, cursor, b"COUNT", count], read).await?,
        };
        self.check()?;
        self.cursor = (next != "0").then_some(next);
        if let ScanSource::SortedSet(_) = self.source {
            // Each member is followed by its score.
            elements = elements.into_iter().step_by(2).collect();
        }
        self.last = Some(elements.len() as u64);
        Ok(Some(elements))
    }

    /// Checks that the connection is still that of the start.
    ///
    /// # Errors
    /// `Unavailable` if the client reconnected.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.is_cut |= self.generation.is_none() || self.connection.generation() != self.generation;
        if !self.is_cut {
            return Ok(());
        }
        let message =
            "the client reconnected to the store during a scan, so the result may be incomplete; run it again";
        Err(Error::unavailable(message, Outcome::Unchanged))
    }
}

/// Pauses. A timer counts whole milliseconds and takes longer than planned; the next pauses are shorter by that, the credit.
async fn rest(clock: &dyn Clock, pause: Duration, credit: &mut Duration) {
    let left = pause.saturating_sub(*credit);
    *credit = credit.saturating_sub(pause);
    if !left.is_zero() {
        let asleep_at = clock.mono();
        clock.sleep(left).await;
        *credit = clock.mono().since(asleep_at).saturating_sub(left).min(MOST_CREDIT);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tenure_core::clock::ManualClock;

    use super::*;

    #[tokio::test]
    async fn late_timer_shortens_the_next_pauses() {
        let (clock, mut credit, pause) = (ManualClock::new(0, 1), Duration::ZERO, Duration::from_millis(2));
        // How late the timer is, and how long the pause after that lasts.
        for (late, next) in [(0, 2), (1, 1), (3, 0), (1_000, 0)] {
            let mut paused = Box::pin(rest(&clock, pause, &mut credit));
            assert!(paused.as_mut().now_or_never().is_none());
            clock.advance(pause + Duration::from_millis(late));
            paused.await;
            let mut waited = 0;
            let mut paused = Box::pin(rest(&clock, pause, &mut credit));
            while paused.as_mut().now_or_never().is_none() {
                clock.advance(Duration::from_millis(1));
                waited += 1;
            }
            drop(paused);
            assert_eq!(waited, next, "after {late} ms");
            assert!(credit <= pause, "a pause of the machine is not the timer's");
            credit = Duration::ZERO;
        }
    }

    #[test]
    fn rest_grows_with_pages_above_their_size() {
        let pace = Pace {
            page: 200,
            rest: Duration::from_millis(1),
        };
        for (elements, rest) in [(0, 1_000), (200, 1_000), (500, 2_500)] {
            assert_eq!(pace.rest_after(elements), Duration::from_micros(rest));
        }
    }
}
