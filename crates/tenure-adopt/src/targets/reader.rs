//! Reads targets that another program stores as keys: one key per target, matched by a pattern ([`KeyPattern`]) with a
//! placeholder for the target's name. With fields configured, a key that is a hash or a JSON object can mark its target
//! as paused, or as a session without connections, which is not a target.
//!
//! The keys are only read: by `SCAN` in pages with pauses, so that a large keyspace loads the server only little at a
//! time, and the fields by one script per page. A target that exists throughout a read is in the result; one that is
//! created or deleted during it may be. An incomplete read is an error, never a shorter list.
//!
//! Keys without a valid target name are left out, and targets of unreadable keys are paused. Both are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::target::TargetSpec;

use super::fields::{Fields, Reading, TargetStatus};
use crate::pattern::KeyPattern;
use crate::scan::{Pace, Scan, ScanSource};
use crate::weight::WEIGHT;
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Read, Script};

/// A million keys take ten seconds and at most a tenth of the server's time.
const PACE: Pace = Pace {
    page: 500,
    rest: Duration::from_millis(5),
};
/// The longest string that is parsed as JSON.
const MAX_TEXT: usize = 16 * 1024;
/// How many names without a use are listed.
const NAMED: usize = 3;
/// The most targets of one read. More means that the pattern is too wide.
pub const MAX_FOREIGN: usize = 1_000_000;

/// The target of a key, if the name is valid.
fn target(pattern: &KeyPattern, key: &[u8]) -> Option<LeaseName> {
    LeaseName::new(std::str::from_utf8(pattern.name(key)?).ok()?).ok()
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignTargets {
    /// The targets, each of weight 1.
    pub targets: BTreeMap<LeaseName, TargetSpec>,
    /// How many matching keys have no valid target name.
    pub nameless: usize,
    /// The first such names.
    pub nameless_first: Vec<Vec<u8>>,
    /// How many keys have the field that pauses.
    pub with_field: usize,
    /// How many targets are paused because their key is unreadable.
    pub unclear: usize,
}

/// Reads targets of another program.
#[derive(Debug, Clone)]
pub struct ForeignReader {
    connection: Connection,
    pattern: KeyPattern,
    fields: Fields,
    script: std::sync::Arc<Script>,
}

impl ForeignReader {
    /// A reader over a connection. `paused_field`: the field, of a hash or of a string with a JSON object, that pauses
    /// the target. It does so if it exists and is not one of `0`, `false`, `no`, `off` and empty (in JSON `null`).
    /// A string that is not a JSON object or too long, and a key of another type, are unreadable, so their targets are
    /// paused as well.
    #[must_use]
    pub fn new(connection: Connection, pattern: KeyPattern, paused_field: Option<String>) -> Self {
        let text = [include_str!("../scripts/foreign_fields.lua")];
        Self {
            connection,
            pattern,
            fields: Fields {
                paused: paused_field,
                disconnected: None,
            },
            script: std::sync::Arc::new(Script::new("foreign_fields", &text)),
        }
    }

    /// Treats the keys as sessions with this field for the disconnect time. A session is left out if the field is a
    /// number other than `0`; without the field it is connected. If the value is not a number, or the string is not a
    /// JSON object, the target is paused.
    #[must_use]
    pub fn disconnected_field(mut self, field: String) -> Self {
        self.fields.disconnected = Some(field);
        self
    }

    /// Reads all targets. O(keys of the database), throttled.
    ///
    /// # Errors
    /// `Unavailable`; `Denied` without the permission for `SCAN`; `Misconfigured` for more than [`MAX_FOREIGN`]
    /// targets.
    pub async fn read(&self) -> Result<ForeignTargets> {
        let mut found = ForeignTargets::default();
        let mut nameless = std::collections::HashSet::new();
        let mut scan = Scan::begin(&self.connection, ScanSource::Keys(self.pattern.clone()), PACE);
        while let Some(keys) = scan.page().await? {
            let mut named = Vec::with_capacity(keys.len());
            for key in keys {
                match target(&self.pattern, &key) {
                    Some(target) => named.push((target, key)),
                    None => {
                        let name = self.pattern.name(&key).unwrap_or_default().to_vec();
                        if nameless.insert(key) && found.nameless_first.len() < NAMED {
                            found.nameless_first.push(name);
                        }
                    }
                }
            }
            self.specify(named, &mut found).await?;
            if found.targets.len() > MAX_FOREIGN || nameless.len() > MAX_FOREIGN {
                let why = format!(
                    "more than {MAX_FOREIGN} keys match {}; use a narrower pattern",
                    self.pattern
                );
                return Err(Error::new(ErrorKind::Misconfigured, why));
            }
        }
        // Also covers the field reads of the last page.
        scan.check()?;
        found.nameless = nameless.len();
        Ok(found)
    }

    /// Adds the targets of these keys.
    async fn specify(&self, named: Vec<(LeaseName, Vec<u8>)>, found: &mut ForeignTargets) -> Result<()> {
        let (targets, keys): (Vec<LeaseName>, Vec<Vec<u8>>) = named.into_iter().unzip();
        let readings = if keys.is_empty() || self.fields.names().is_empty() {
            vec![Reading::LIVE; targets.len()]
        } else {
            self.statuses(keys).await?
        };
        for (
            target,
            Reading {
                status,
                has_paused_field,
            },
        ) in targets.into_iter().zip(readings)
        {
            found.unclear += usize::from(status == TargetStatus::Unclear);
            found.with_field += usize::from(has_paused_field);
            if status != TargetStatus::Disconnected {
                let paused = status != TargetStatus::Live;
                let spec = TargetSpec {
                    paused,
                    ..TargetSpec::default()
                };
                found.targets.insert(target, spec);
            }
        }
        Ok(())
    }

    /// Reads the keys, in as many steps as their weight requires.
    async fn statuses(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Reading>> {
        let mut statuses: Vec<Reading> = Vec::with_capacity(keys.len());
        while statuses.len() < keys.len() {
            if !statuses.is_empty() {
                self.connection.clock().sleep(PACE.rest).await;
            }
            let left = &keys[statuses.len()..];
            statuses.extend(self.first_statuses(left).await?);
        }
        Ok(statuses)
    }

    /// Reads the first of the keys, at least one.
    async fn first_statuses(&self, keys: &[Vec<u8>]) -> Result<Vec<Reading>> {
        let invocation = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys(keys.iter().cloned())
            .number(MAX_TEXT as u64)
            .number(WEIGHT)
            .args(self.fields.names());
        self.connection
            .call(&self.script, invocation, |reader, _| {
                let mut answers = reader.array()?;
                let count = answers.left();
                if count == 0 || count > keys.len() {
                    return Err(Malformed(format!("{count} answers for {} keys", keys.len())));
                }
                (0..count)
                    .map(|_| read_status(answers.array()?.all_bytes()?, &self.fields))
                    .collect()
            })
            .await
    }
}

/// Parses the script's result for one key.
fn read_status(answer: Vec<Vec<u8>>, fields: &Fields) -> Read<Reading> {
    match answer.split_first() {
        Some((kind, values)) if kind == b"h" => Ok(fields.of_hash(values)),
        Some((kind, [text])) if kind == b"t" => Ok(fields.of_text(text)),
        Some((kind, [])) if kind == b"?" => Ok(Reading::UNCLEAR),
        _ => Err(Malformed("an unknown kind of key".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_the_target_name() {
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
}
