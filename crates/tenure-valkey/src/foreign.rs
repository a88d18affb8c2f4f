//! Targets that another program keeps as keys of its own: one key each, found by a pattern ([`KeyPattern`]) with the place
//! of the target's name. With a field named, a key that is a hash may say that its target is paused.
//!
//! The keys are only read: by `SCAN` in steps with a pause between them, so that a large keyspace costs the server little
//! at a time, and the field by one script per step. A target that is there throughout a reading is in it; one that comes
//! or goes meanwhile may or may not be. A reading that cannot be finished is an error, never a shorter list.
//!
//! What it refuses: to write, and to guess at keys whose name cannot be a target's (they are counted).

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::target::TargetSpec;

use crate::connection::Connection;
use crate::pattern::KeyPattern;
use crate::reply::{Read, Reader};
use crate::script::{Invocation, Lateness, Script};

/// How many keys one step of a scan looks at.
const STEP: usize = 500;
/// The pause between two steps: a million keys take ten seconds, and a tenth of the server at most.
const PAUSE: Duration = Duration::from_millis(5);
/// The most targets of one reading. More is a pattern that matches what it should not.
pub const MAX_FOREIGN: usize = 1_000_000;

/// The target that a key is about, if its name can be one.
fn target(pattern: &KeyPattern, key: &[u8]) -> Option<LeaseName> {
    LeaseName::new(std::str::from_utf8(pattern.name(key)?).ok()?).ok()
}

/// What a reading found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignTargets {
    /// The targets, all of weight 1.
    pub targets: BTreeMap<LeaseName, TargetSpec>,
    /// How many keys match and have no name that a target can have.
    pub nameless: usize,
}

/// Reads targets of another program.
#[derive(Debug, Clone)]
pub struct ForeignReader {
    connection: Connection,
    pattern: KeyPattern,
    paused_field: Option<String>,
    script: std::sync::Arc<Script>,
}

impl ForeignReader {
    /// A reader over a connection. `paused_field`: the field of a hash that says whether its target is paused. It is when
    /// the field is there and says anything but `0`, `false`, `no`, `off` or nothing: what nobody understands is not
    /// worked on.
    #[must_use]
    pub fn new(connection: Connection, pattern: KeyPattern, paused_field: Option<String>) -> Self {
        let text = [
            include_str!("scripts/clock.lua"),
            include_str!("scripts/foreign_paused.lua"),
        ];
        Self {
            connection,
            pattern,
            paused_field,
            script: std::sync::Arc::new(Script::new("foreign_paused", &text)),
        }
    }

    /// Reads them all. O(keys of the database), throttled.
    ///
    /// # Errors
    /// `Unavailable`, `Denied` without the right to `SCAN`, `Misconfigured` for more than [`MAX_FOREIGN`] targets.
    pub async fn read(&self) -> Result<ForeignTargets> {
        let (mut found, mut cursor) = (ForeignTargets::default(), "0".to_owned());
        let mut nameless = std::collections::HashSet::new();
        loop {
            let (next, keys) = self.step(&cursor).await?;
            let mut named = Vec::with_capacity(keys.len());
            for key in keys {
                match target(&self.pattern, &key) {
                    Some(target) => named.push((target, key)),
                    None => {
                        nameless.insert(key);
                    }
                }
            }
            found.targets.extend(self.specifications(named).await?);
            if found.targets.len() > MAX_FOREIGN || nameless.len() > MAX_FOREIGN {
                let why = format!(
                    "more than {MAX_FOREIGN} keys match {}; no fleet is that large",
                    self.pattern
                );
                return Err(Error::new(ErrorKind::Misconfigured, why));
            }
            if next == "0" {
                found.nameless = nameless.len();
                return Ok(found);
            }
            cursor = next;
            self.connection.clock().sleep(PAUSE).await;
        }
    }

    async fn step(&self, cursor: &str) -> Result<(String, Vec<Vec<u8>>)> {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(cursor)
            .arg("MATCH")
            .arg(self.pattern.glob())
            .arg("COUNT")
            .arg(STEP);
        let value = self.connection.command(cmd).await?;
        read_scan(value).map_err(crate::view::foreign)
    }

    async fn specifications(&self, named: Vec<(LeaseName, Vec<u8>)>) -> Result<Vec<(LeaseName, TargetSpec)>> {
        let (targets, keys): (Vec<LeaseName>, Vec<Vec<u8>>) = named.into_iter().unzip();
        let paused = match &self.paused_field {
            Some(field) if !keys.is_empty() => self.paused(keys, field).await?,
            _ => vec![false; targets.len()],
        };
        let spec = |paused| TargetSpec {
            paused,
            ..TargetSpec::default()
        };
        Ok(targets.into_iter().zip(paused.into_iter().map(spec)).collect())
    }

    async fn paused(&self, keys: Vec<Vec<u8>>, field: &str) -> Result<Vec<bool>> {
        let count = keys.len();
        let invocation = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys(keys)
            .arg(field);
        self.connection
            .call(&self.script, invocation, |reader, _| {
                let mut said = reader.array()?;
                if said.left() != count {
                    return Err(crate::reply::Malformed(format!(
                        "{} fields of {count} keys",
                        said.left()
                    )));
                }
                (0..count)
                    .map(|_| Ok(says_paused(&said.maybe_bytes()?.unwrap_or_default())))
                    .collect()
            })
            .await
    }
}

fn says_paused(value: &[u8]) -> bool {
    let value = value.trim_ascii().to_ascii_lowercase();
    !matches!(&value[..], b"" | b"0" | b"false" | b"no" | b"off")
}

fn read_scan(value: Value) -> Read<(String, Vec<Vec<u8>>)> {
    let mut reader = Reader::new(value)?;
    let (next, mut keys) = (reader.text()?, reader.array()?);
    let mut found = Vec::with_capacity(keys.left());
    while keys.left() > 0 {
        found.push(keys.maybe_bytes()?.unwrap_or_default());
    }
    Ok((next, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_star_stands_for_the_name_of_the_target() {
        let pattern = KeyPattern::parse("poll:*:config").unwrap();
        let named = |key: &str| target(&pattern, key.as_bytes()).map(|name| name.to_string());
        assert_eq!(named("poll:device-1:config").as_deref(), Some("device-1"));
        assert_eq!(named("poll:a:b:config").as_deref(), Some("a:b"));
        for none in [
            "poll::config",
            "poll:config",
            "poll:a b:config",
            "other:a:config",
            "poll:a",
        ] {
            assert_eq!(named(none), None, "{none}");
        }
        assert_eq!(target(&pattern, b"poll:\xff:config"), None);
    }

    #[test]
    fn what_nobody_understands_is_paused() {
        for goes_on in ["", "0", "false", "False", "no", "OFF", " 0 "] {
            assert!(!says_paused(goes_on.as_bytes()), "{goes_on:?}");
        }
        for paused in ["1", "true", "yes", "2026-01-01", "paused", "\u{ff}"] {
            assert!(says_paused(paused.as_bytes()), "{paused:?}");
        }
    }
}
