//! Targets that another program keeps as keys of its own: one key each, found by a pattern ([`KeyPattern`]) with the place
//! of the target's name. With fields named, a key that is a hash or a JSON object may say that its target is paused, or that it
//! is a session without connections, which is no target.
//!
//! The keys are only read: by `SCAN` in steps with a pause between them, so that a large keyspace costs the server little
//! at a time, and the fields by one script per step. A target that is there throughout a reading is in it; one that comes
//! or goes meanwhile may or may not be. A reading that cannot be finished is an error, never a shorter list.
//!
//! What it refuses: to write, and to guess. Keys whose name cannot be a target's are left out, and targets of keys that
//! cannot be understood are paused; both are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::target::TargetSpec;

use super::fields::{Fields, Said};
use crate::pattern::KeyPattern;
use crate::scan::{Over, Pace, Scan};
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Read, Script};

/// A million keys take ten seconds, and a tenth of the server at most.
const PACE: Pace = Pace {
    page: 500,
    rest: Duration::from_millis(5),
};
/// The longest text of a key that is read as JSON. No configuration of a target is longer.
const MAX_TEXT: usize = 16 * 1024;
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
    /// How many targets are paused because what their key holds cannot be understood.
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
    /// A reader over a connection. `paused_field`: the field that says whether its target is paused, of a hash or of a
    /// string that is a JSON object. It is when the field is there and says anything but `0`, `false`, `no`, `off` or
    /// nothing (in JSON `null`). A string that begins like JSON and is none, one that is too long, and a key of another type are not
    /// understood: their targets are paused as well. Any other string has no fields and pauses nothing.
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

    /// The keys are sessions, and this field says since when one has no connection: one of which it says so is left out. It
    /// does with any number but `0`; a session without the field has connections. What is no number, and a string that is no
    /// JSON object, is not understood: those targets are paused.
    #[must_use]
    pub fn disconnected_field(mut self, field: String) -> Self {
        self.fields.disconnected = Some(field);
        self
    }

    /// Reads them all. O(keys of the database), throttled.
    ///
    /// # Errors
    /// `Unavailable`, `Denied` without the right to `SCAN`, `Misconfigured` for more than [`MAX_FOREIGN`] targets.
    pub async fn read(&self) -> Result<ForeignTargets> {
        let mut found = ForeignTargets::default();
        let mut nameless = std::collections::HashSet::new();
        let mut scan = Scan::begin(&self.connection, Over::Keys(self.pattern.clone()), PACE);
        while let Some(keys) = scan.page().await? {
            let mut named = Vec::with_capacity(keys.len());
            for key in keys {
                match target(&self.pattern, &key) {
                    Some(target) => named.push((target, key)),
                    None => {
                        nameless.insert(key);
                    }
                }
            }
            let (specifications, unclear) = self.specifications(named).await?;
            found.targets.extend(specifications);
            found.unclear += unclear;
            if found.targets.len() > MAX_FOREIGN || nameless.len() > MAX_FOREIGN {
                let why = format!(
                    "more than {MAX_FOREIGN} keys match {}; no fleet is that large",
                    self.pattern
                );
                return Err(Error::new(ErrorKind::Misconfigured, why));
            }
        }
        // The fields of the last page as well.
        scan.check()?;
        found.nameless = nameless.len();
        Ok(found)
    }

    /// The targets of these keys, and how many of them are unclear.
    async fn specifications(&self, named: Vec<(LeaseName, Vec<u8>)>) -> Result<(Vec<(LeaseName, TargetSpec)>, usize)> {
        let (targets, keys): (Vec<LeaseName>, Vec<Vec<u8>>) = named.into_iter().unzip();
        let said = if keys.is_empty() || self.fields.names().is_empty() {
            vec![Said::Live; targets.len()]
        } else {
            self.said(keys).await?
        };
        let unclear = said.iter().filter(|said| **said == Said::Unclear).count();
        let live = targets.into_iter().zip(said);
        let live = live.filter(|(_, said)| *said != Said::Disconnected);
        let with_spec = live.map(|(target, said)| {
            let spec = TargetSpec {
                paused: said != Said::Live,
                ..TargetSpec::default()
            };
            (target, spec)
        });
        Ok((with_spec.collect(), unclear))
    }

    async fn said(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Said>> {
        let count = keys.len();
        let invocation = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys(keys)
            .number(MAX_TEXT as u64)
            .args(self.fields.names());
        self.connection
            .call(&self.script, invocation, |reader, _| {
                let mut answers = reader.array()?;
                if answers.left() != count {
                    return Err(Malformed(format!("{} answers for {count} keys", answers.left())));
                }
                (0..count)
                    .map(|_| said_by(answers.array()?.all_bytes()?, &self.fields))
                    .collect()
            })
            .await
    }
}

/// Reads what the script tells of a key.
fn said_by(answer: Vec<Vec<u8>>, fields: &Fields) -> Read<Said> {
    match answer.split_first() {
        Some((kind, values)) if kind == b"h" => Ok(fields.of_hash(values)),
        Some((kind, [text])) if kind == b"t" => Ok(fields.of_text(text)),
        Some((kind, [])) if kind == b"?" => Ok(Said::Unclear),
        _ => Err(Malformed("neither a hash, a text nor anything else".to_owned())),
    }
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
}
