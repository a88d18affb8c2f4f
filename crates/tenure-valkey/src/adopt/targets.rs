//! Targets that other programs tell of: a key each, whose name holds the target's.
//!
//! It reads the keyspace in pages (`SCAN`), with a rest between them, and never with `KEYS`. A scan that did not reach
//! its end over one and the same connection tells nothing: a target that it did not come to would look removed.

mod pattern;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::LeaseName;

use super::PAGE;
use super::leases::{HEAD, READS};
use crate::connection::Connection;
use crate::reply::{Malformed, Read, Reader};
use crate::script::{Invocation, Lateness, Script};

pub use pattern::KeyPattern;

/// How much of the keyspace one page looks at.
const COUNT: usize = 1_000;
/// The time between two pages. Whoever looks for targets is in no hurry, and whoever else talks to the store is.
const REST: Duration = Duration::from_millis(2);
/// The most targets of one pattern. More means that the pattern is too wide.
pub const MAX_TARGETS: usize = 1_000_000;

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundTargets {
    /// Each target, and whether it is paused.
    pub targets: BTreeMap<LeaseName, bool>,
    /// How many keys match whose target's name cannot be that of a lease. They are left out.
    pub skipped: u64,
}

/// The targets that the keys of other programs tell of. Cheap to clone.
#[derive(Clone)]
pub struct ForeignTargets {
    connection: Connection,
    pattern: KeyPattern,
    paused_field: Option<Vec<u8>>,
    look: Arc<Script>,
}

impl fmt::Debug for ForeignTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignTargets({} at {})", self.pattern, self.connection.place())
    }
}

impl ForeignTargets {
    /// The targets of a pattern, none of them paused.
    #[must_use]
    pub fn new(connection: Connection, pattern: KeyPattern) -> Self {
        let body = include_str!("../scripts/adopt_lease_target.lua");
        Self {
            connection,
            pattern,
            paused_field: None,
            look: Arc::new(Script::new("adopt_lease_target", &[READS, HEAD, body])),
        }
    }

    /// The keys are hashes, and this field of theirs tells whether the target is paused: it is when the value is `1`,
    /// `true`, `yes` or `on`, in any case. It is not when the field is missing or the key is no hash.
    #[must_use]
    pub fn with_paused_field(self, field: impl Into<Vec<u8>>) -> Self {
        Self {
            paused_field: Some(field.into()),
            ..self
        }
    }

    /// All targets there are now. O(size of the keyspace), in pages.
    ///
    /// # Errors
    /// `Unavailable` for anything that leaves it incomplete, a connection that was made anew among it. `Misconfigured`
    /// above [`MAX_TARGETS`]. `Denied`.
    pub async fn list(&self) -> Result<FoundTargets> {
        let mut found = FoundTargets::default();
        let mut scan = KeyScan::begin(&self.connection, &self.pattern, None);
        while let Some(keys) = scan.page().await? {
            let mut names = Vec::with_capacity(keys.len());
            for key in keys {
                let name = self.pattern.target(&key).map(std::str::from_utf8);
                match name {
                    Some(Ok(name)) if LeaseName::new(name).is_ok() => names.push((LeaseName::new(name)?, key)),
                    _ => found.skipped += 1,
                }
            }
            for some in names.chunks(PAGE) {
                self.learn(some, &mut found).await?;
            }
            if found.targets.len() > MAX_TARGETS {
                let message = format!(
                    "more than {MAX_TARGETS} keys match {}; no fleet is that large",
                    self.pattern
                );
                return Err(Error::new(ErrorKind::Misconfigured, message));
            }
        }
        Ok(found)
    }

    async fn learn(&self, some: &[(LeaseName, Vec<u8>)], found: &mut FoundTargets) -> Result<()> {
        let Some(field) = &self.paused_field else {
            found.targets.extend(some.iter().map(|(name, _)| (name.clone(), false)));
            return Ok(());
        };
        let call = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys(some.iter().map(|(_, key)| key.clone()))
            .arg(field);
        let read = |reader: &mut Reader, _| {
            let mut fields = reader.array()?;
            let read: Read<Vec<Option<bool>>> = some.iter().map(|_| Ok(fields.maybe_bytes()?.map(is_yes))).collect();
            read
        };
        let paused = self.connection.call(&self.look, call, read).await?;
        let there = some.iter().zip(paused);
        found
            .targets
            .extend(there.filter_map(|((name, _), paused)| Some((name.clone(), paused?))));
        Ok(())
    }
}

fn is_yes(value: Vec<u8>) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(value.as_slice(), b"1" | b"true" | b"yes" | b"on")
}

/// A scan of the keys of a pattern, page by page. A key may come more than once.
pub(super) struct KeyScan<'a> {
    connection: &'a Connection,
    glob: Vec<u8>,
    kind: Option<&'static str>,
    cursor: Option<String>,
    begun: bool,
    life: Option<u64>,
}

impl<'a> KeyScan<'a> {
    pub(super) fn begin(connection: &'a Connection, pattern: &KeyPattern, kind: Option<&'static str>) -> Self {
        Self {
            connection,
            glob: pattern.glob(),
            kind,
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
        if let Some(kind) = self.kind {
            cmd.arg("TYPE").arg(kind);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_pauses() {
        for yes in ["1", "true", "TRUE", "Yes", "on"] {
            assert!(is_yes(yes.into()), "{yes}");
        }
        for no in ["", "0", "false", "no", "off", "2", "null", "paused"] {
            assert!(!is_yes(no.into()), "{no}");
        }
    }
}
