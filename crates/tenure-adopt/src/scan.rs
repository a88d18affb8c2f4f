//! Reading a keyspace, a hash or a sorted set page by page, with a rest after each page, and never with `KEYS`.

use std::time::Duration;

use tenure_core::error::{Error, Outcome, Result};
use tenure_core::time::micros;
use tenure_valkey::connection::{Connection, Reader};

use crate::pattern::KeyPattern;

/// How fast a scan goes: others use the store as well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How many elements a page asks for. It may have more, or none.
    pub(crate) page: u64,
    /// The rest after a page of that size; longer after a larger one.
    pub(crate) rest: Duration,
}

impl Pace {
    fn rest_after(self, elements: u64) -> Duration {
        let page = self.page.max(1);
        Duration::from_micros(micros(self.rest).saturating_mul(elements.max(page)) / page)
    }
}

/// What is scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Over {
    /// The keys of a pattern.
    Keys(KeyPattern),
    /// The hash of this name: fields and values in turn.
    Hash(Vec<u8>),
    /// The sorted set of this name: its members.
    SortedSet(Vec<u8>),
}

/// A scan, page by page. An element may come more than once. A scan that did not reach its end over one and the same
/// connection proves nothing: a cursor means nothing to a server that was restarted, or to another server.
pub(crate) struct Scan {
    connection: Connection,
    over: Over,
    pace: Pace,
    cursor: Option<String>,
    /// How many elements the last page had; `None` before the first one.
    last: Option<u64>,
    life: Option<u64>,
    is_cut: bool,
}

impl Scan {
    pub(crate) fn begin(connection: &Connection, over: Over, pace: Pace) -> Self {
        Self {
            connection: connection.clone(),
            over,
            pace,
            cursor: Some("0".to_owned()),
            last: None,
            life: connection.life(),
            is_cut: false,
        }
    }

    /// Goes on with something else, which counts only together with what was scanned before.
    pub(crate) fn go_on_with(&mut self, over: Over) {
        (self.over, self.cursor, self.last) = (over, Some("0".to_owned()), None);
    }

    /// Whether a page came over another connection than the first one.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether the last page was the end.
    pub(crate) fn is_over(&self) -> bool {
        self.cursor.is_none()
    }

    /// The next page, after a rest; `None` after the last one.
    ///
    /// # Errors
    /// Those of the store, and `Unavailable` when the client has reconnected since the beginning.
    pub(crate) async fn page(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        if let Some(elements) = self.last {
            self.connection.clock().sleep(self.pace.rest_after(elements)).await;
        }
        let (cursor, count) = (cursor.as_bytes(), self.pace.page.to_string());
        let (connection, count) = (&self.connection, count.as_bytes());
        let read = |reply: &mut Reader| {
            let mut page = reply.array()?;
            Ok((page.text()?, page.array()?.all_bytes()?))
        };
        let (next, mut elements) = match &self.over {
            Over::Keys(pattern) => {
                let glob = pattern.glob();
                let words: &[&[u8]] = &[b"SCAN", cursor, b"MATCH", &glob, b"COUNT", count];
                connection.ask(words, read).await?
            }
            Over::Hash(key) => connection.ask(&[b"HSCAN", key, cursor, b"COUNT", count], read).await?,
            Over::SortedSet(key) => connection.ask(&[b"ZSCAN", key, cursor, b"COUNT", count], read).await?,
        };
        self.check()?;
        self.cursor = (next != "0").then_some(next);
        if let Over::SortedSet(_) = self.over {
            // Each member comes with its score.
            elements = elements.into_iter().step_by(2).collect();
        }
        self.last = Some(elements.len() as u64);
        Ok(Some(elements))
    }

    /// Checks that the connection is still the one of the beginning.
    ///
    /// # Errors
    /// `Unavailable` when it is another.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.is_cut |= self.life.is_none() || self.connection.life() != self.life;
        if !self.is_cut {
            return Ok(());
        }
        let message =
            "the client reconnected to the store during a scan, so the result may be incomplete; run it again";
        Err(Error::unavailable(message, Outcome::Unchanged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
