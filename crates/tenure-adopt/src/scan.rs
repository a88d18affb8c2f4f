//! Reads a keyspace, a hash or a sorted set page by page, with a pause after each page and never with `KEYS`.

use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::time::micros;
use tenure_valkey::connection::{Connection, Reader};

use crate::pattern::KeyPattern;
use crate::weight::WEIGHT;

/// The most by which a pause that was too long shortens the next ones. More is not the timer's delay but the machine's.
const MOST_CREDIT: Duration = Duration::from_millis(4);

/// The first page asks for so many elements, since their size is not known.
const FIRST_PAGE: u64 = 16;

/// The speed of a scan, which leaves the store time for other clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The most elements that a page asks for. It may return more or none.
    pub(crate) page: u64,
    /// The pause after a page of that size, or of [`WEIGHT`]; proportionally longer after a larger one.
    pub(crate) rest: Duration,
}

impl Pace {
    fn rest_after(self, last: PageSize) -> Duration {
        let page = self.page.max(1);
        let by_count = micros(self.rest).saturating_mul(last.elements.max(page)) / page;
        let by_weight = micros(self.rest).saturating_mul(last.bytes) / WEIGHT;
        Duration::from_micros(by_count.max(by_weight))
    }
}

/// The size of a page.
#[derive(Debug, Clone, Copy, Default)]
struct PageSize {
    elements: u64,
    bytes: u64,
}

/// How many elements the next page asks for. Elements of a scan come in the order of their hashes, so the size of the
/// last ones is the best estimate for the next.
#[derive(Debug)]
struct PageCount {
    most: u64,
    next: u64,
    /// The estimated size of an element, in bytes.
    each: u64,
}

impl PageCount {
    fn new(most: u64) -> Self {
        Self {
            most: most.max(1),
            next: FIRST_PAGE.min(most.max(1)),
            each: 0,
        }
    }

    /// Learns from a page. Grows by steps, and shrinks at once.
    fn learn(&mut self, page: PageSize) {
        self.each = (page.bytes / page.elements.max(1)).max(self.each / 4 * 3);
        let light = WEIGHT / self.each.max(1);
        self.next = light.clamp(1, self.most).min(self.next.saturating_mul(4));
    }

    /// A page that did not arrive in time may have been too large. Returns whether a smaller one can be tried.
    fn shrink(&mut self) -> bool {
        let is_smaller = self.next > 1;
        (self.next, self.each) = (1, WEIGHT);
        is_smaller
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
    last: Option<PageSize>,
    count: PageCount,
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
            count: PageCount::new(pace.page),
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

    /// The next page, after a pause; `None` after the last one. Its weight is about [`WEIGHT`].
    ///
    /// # Errors
    /// Those of the store, and `Unavailable` if the client has reconnected since the start.
    pub(crate) async fn page(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(cursor) = self.cursor.clone() else {
            return Ok(None);
        };
        if let Some(last) = self.last {
            let pause = self.pace.rest_after(last);
            rest(&**self.connection.clock(), pause, &mut self.credit).await;
        }
        let (next, mut elements) = match self.ask(&cursor).await {
            Err(error) if error.is_unavailable() && !self.is_reconnected() && self.count.shrink() => {
                self.ask(&cursor).await?
            }
            page => page?,
        };
        self.check()?;
        self.cursor = (next != "0").then_some(next);
        let bytes = elements.iter().map(|element| element.len() as u64).sum();
        if let ScanSource::SortedSet(_) = self.source {
            // Each member is followed by its score.
            elements = elements.into_iter().step_by(2).collect();
        }
        let pair = if matches!(self.source, ScanSource::Hash(_)) {
            2
        } else {
            1
        };
        let elements_read = elements.len() as u64;
        self.last = Some(PageSize {
            elements: elements_read,
            bytes,
        });
        self.count.learn(PageSize {
            elements: elements_read / pair,
            bytes,
        });
        Ok(Some(elements))
    }

    /// Asks for the page at the cursor.
    async fn ask(&self, cursor: &str) -> Result<(String, Vec<Vec<u8>>)> {
        let (cursor, count) = (cursor.as_bytes(), self.count.next.to_string());
        let (connection, count) = (&self.connection, count.as_bytes());
        let read = |reply: &mut Reader| {
            let mut page = reply.array()?;
            Ok((page.text()?, page.array()?.all_bytes()?))
        };
        match &self.source {
            ScanSource::Keys(pattern) => {
                let glob = pattern.glob();
                let words: &[&[u8]] = &[b"SCAN", cursor, b"MATCH", &glob, b"COUNT", count];
                connection.ask(words, read).await
            }
            ScanSource::Hash(key) => connection.ask(&[b"HSCAN", key, cursor, b"COUNT", count], read).await,
            ScanSource::SortedSet(key) => connection.ask(&[b"ZSCAN", key, cursor, b"COUNT", count], read).await,
        }
    }

    fn is_reconnected(&self) -> bool {
        self.generation.is_none() || self.connection.generation() != self.generation
    }

    /// Checks that the connection is still that of the start.
    ///
    /// # Errors
    /// `Unavailable` if the client reconnected.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.is_cut |= self.is_reconnected();
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
        for (elements, bytes, rest) in [
            (0, 0, 1_000),
            (200, 0, 1_000),
            (500, 0, 2_500),
            (1, WEIGHT, 1_000),
            (1, 4 * WEIGHT, 4_000),
        ] {
            let page = PageSize { elements, bytes };
            assert_eq!(pace.rest_after(page), Duration::from_micros(rest));
        }
    }

    #[test]
    fn pages_shrink_at_once_and_grow_by_steps() {
        let mut count = PageCount::new(500);
        let mut asked = Vec::new();
        for (elements, each) in [(16, 10), (64, 10), (256, 10), (500, 10), (500, 1 << 20), (1, 1 << 20)] {
            asked.push(count.next);
            let bytes = elements * each;
            count.learn(PageSize { elements, bytes });
        }
        assert_eq!(asked, [16, 64, 256, 500, 500, 1]);
        let mut pages = 0;
        while count.next < 500 {
            let elements = count.next;
            count.learn(PageSize {
                elements,
                bytes: elements * 10,
            });
            pages += 1;
        }
        assert!(pages < 40, "{pages} pages until they are large again");
        // Without elements nothing is known about their size.
        count.learn(PageSize::default());
        assert_eq!(count.next, 500);
        assert!(count.shrink() && !count.shrink());
    }
}
