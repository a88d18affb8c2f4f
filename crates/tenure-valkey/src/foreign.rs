//! Targets that another program keeps as keys of its own: one key each, found by a pattern ([`KeyPattern`]) with the place
//! of the target's name. With a field named, a key that is a hash or a JSON object may say that its target is paused.
//!
//! The keys are only read: by `SCAN` in steps with a pause between them, so that a large keyspace costs the server little
//! at a time, and the field by one script per step. A target that is there throughout a reading is in it; one that comes
//! or goes meanwhile may or may not be. A reading that cannot be finished is an error, never a shorter list.
//!
//! What it refuses: to write, and to guess. Keys whose name cannot be a target's are left out, and targets of keys that
//! cannot be understood are paused; both are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use serde_json::Value as Json;
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

/// What a key says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Active,
    Paused,
    /// It cannot be understood, and so the target is not worked on.
    Unclear,
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
    /// A reader over a connection. `paused_field`: the field that says whether its target is paused, of a hash or of a
    /// string that is a JSON object. It is when the field is there and says anything but `0`, `false`, `no`, `off` or
    /// nothing (in JSON `null`). A string that begins like JSON and is none, one that is too long, and a key of another type are not
    /// understood: their targets are paused as well. Any other string has no fields and pauses nothing.
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

    /// The targets of these keys, and how many of them are unclear.
    async fn specifications(&self, named: Vec<(LeaseName, Vec<u8>)>) -> Result<(Vec<(LeaseName, TargetSpec)>, usize)> {
        let (targets, keys): (Vec<LeaseName>, Vec<Vec<u8>>) = named.into_iter().unzip();
        let said = match &self.paused_field {
            Some(field) if !keys.is_empty() => self.said(keys, field).await?,
            _ => vec![Said::Active; targets.len()],
        };
        let unclear = said.iter().filter(|said| **said == Said::Unclear).count();
        let spec = |said| TargetSpec {
            paused: said != Said::Active,
            ..TargetSpec::default()
        };
        Ok((targets.into_iter().zip(said.into_iter().map(spec)).collect(), unclear))
    }

    async fn said(&self, keys: Vec<Vec<u8>>, field: &str) -> Result<Vec<Said>> {
        let count = keys.len();
        let invocation = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys(keys)
            .arg(field)
            .number(MAX_TEXT as u64);
        self.connection
            .call(&self.script, invocation, |reader, _| {
                let mut answers = reader.array()?;
                if answers.left() != count {
                    return Err(crate::reply::Malformed(format!(
                        "{} fields of {count} keys",
                        answers.left()
                    )));
                }
                (0..count)
                    .map(|_| Ok(said_by(&answers.maybe_bytes()?.unwrap_or_default(), field)))
                    .collect()
            })
            .await
    }
}

/// Reads what the script tells of a key.
fn said_by(answer: &[u8], field: &str) -> Said {
    match answer.split_first() {
        None => Said::Active,
        Some((b'h', value)) => of_value(value),
        Some((b't', text)) => of_text(text, field),
        Some(_) => Said::Unclear,
    }
}

fn of_value(value: &[u8]) -> Said {
    let value = value.trim_ascii().to_ascii_lowercase();
    match &value[..] {
        b"" | b"0" | b"false" | b"no" | b"off" => Said::Active,
        _ => Said::Paused,
    }
}

/// A text that is not JSON has no fields. One that begins like JSON must be valid as a whole.
fn of_text(text: &[u8], field: &str) -> Said {
    if !matches!(text.trim_ascii().first(), Some(b'{' | b'[')) {
        return Said::Active;
    }
    let Ok(Json::Object(fields)) = serde_json::from_slice(text) else {
        return Said::Unclear;
    };
    match fields.get(field) {
        None | Some(Json::Null) => Said::Active,
        Some(Json::String(value)) => of_value(value.as_bytes()),
        Some(value) => of_value(value.to_string().as_bytes()),
    }
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
    fn a_field_pauses_unless_it_says_no() {
        for active in ["", "0", "false", "False", "no", "OFF", " 0 "] {
            assert_eq!(of_value(active.as_bytes()), Said::Active, "{active:?}");
        }
        for paused in ["1", "true", "yes", "2026-01-01", "paused", "\u{ff}"] {
            assert_eq!(of_value(paused.as_bytes()), Said::Paused, "{paused:?}");
        }
    }

    #[test]
    fn json_that_is_not_understood_is_unclear() {
        for (text, said) in [
            (r#"{"IsPaused":true}"#, Said::Paused),
            (r#" {"url":"http://a","IsPaused":1} "#, Said::Paused),
            (r#"{"IsPaused":"yes"}"#, Said::Paused),
            (r#"{"IsPaused":{"since":"2026-01-01"}}"#, Said::Paused),
            (r#"{"IsPaused":false}"#, Said::Active),
            (r#"{"IsPaused":"off"}"#, Said::Active),
            (r#"{"IsPaused":0}"#, Said::Active),
            (r#"{"IsPaused":null}"#, Said::Active),
            (r#"{"isPaused":true}"#, Said::Active),
            ("{}", Said::Active),
            ("http://a", Said::Active),
            ("", Said::Active),
            (r#"{"IsPaused":true"#, Said::Unclear),
            ("{IsPaused: false}", Said::Unclear),
            (r#"[{"IsPaused":false}]"#, Said::Unclear),
        ] {
            assert_eq!(of_text(text.as_bytes(), "IsPaused"), said, "{text}");
        }
    }
}
