//! Reading the keyspace page by page (`SCAN`), with a rest between the pages, and never with `KEYS`.

use std::time::Duration;

use redis::Value;
use tenure_core::error::{Error, Outcome, Result};

use crate::connection::Connection;
use crate::pattern::KeyPattern;
use crate::reply::{Malformed, Read, Reader};

/// How much of the keyspace one page looks at.
const COUNT: usize = 500;
/// The time between two pages. Whoever looks is in no hurry, and whoever else talks to the store is.
const REST: Duration = Duration::from_millis(2);

/// A scan of the keys of a pattern, page by page. A key may come more than once. A scan that did not reach its end over
/// one and the same connection tells nothing.
pub(super) struct KeyScan<'a> {
    connection: &'a Connection,
    glob: Vec<u8>,
    cursor: Option<String>,
    begun: bool,
    life: Option<u64>,
}

impl<'a> KeyScan<'a> {
    pub(super) fn begin(connection: &'a Connection, pattern: &KeyPattern) -> Self {
        Self {
            connection,
            glob: pattern.glob(),
            cursor: Some("0".to_owned()),
            begun: false,
            life: connection.life(),
        }
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// Those of the store, and `Unavailable` when the connection is another one by now: a cursor means nothing to a server
    /// that was restarted, or to another server.
    pub(super) async fn page(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        if self.begun {
            self.connection.clock().sleep(REST).await;
        }
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(cursor).arg("MATCH").arg(&self.glob).arg("COUNT").arg(COUNT);
        let value = self.connection.command(cmd).await?;
        if self.life.is_none() || self.connection.life() != self.life {
            let message = "the connection to the store was made anew during a scan, which is incomplete therefore";
            return Err(Error::unavailable(message, Outcome::Unchanged));
        }
        let (next, keys) = read_page(value).map_err(senseless)?;
        self.begun = true;
        self.cursor = (next != "0").then_some(next);
        Ok(Some(keys))
    }
}

fn read_page(value: Value) -> Read<(String, Vec<Vec<u8>>)> {
    let mut reader = Reader::new(value)?;
    let cursor = reader.text()?;
    let mut rest = reader.array()?;
    let mut keys = Vec::with_capacity(rest.left());
    while rest.left() > 0 {
        let key = rest.maybe_bytes()?;
        keys.push(key.ok_or_else(|| Malformed("nothing in place of a key".to_owned()))?);
    }
    Ok((cursor, keys))
}

fn senseless(malformed: Malformed) -> Error {
    Error::unavailable("the store's reply made no sense", Outcome::Unchanged).because(malformed)
}
