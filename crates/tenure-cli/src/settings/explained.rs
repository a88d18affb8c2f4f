//! The effective value of each setting and its source.

use std::ops::Range;

use serde::Serialize;

use super::{Environment, FlagsOf, Setting, Source, Sources, Table};
use crate::exit::Usage;

/// A setting with the value that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Explained {
    /// Its key in the file.
    pub(crate) key: &'static str,
    /// The value as it was written, without passwords.
    pub(crate) value: String,
    /// Its source: `flag`, `environment`, `file` or `default`.
    pub(crate) source: &'static str,
    /// The name there: the flag, the variable, the path of the file; empty for a default.
    pub(crate) given_as: String,
    /// The default; empty when there is none.
    pub(crate) default: &'static str,
    /// Its description.
    pub(crate) about: &'static str,
}

impl<T: Table> FlagsOf<T> {
    /// Every setting of the table, in its order. Nothing is checked but that the file can be read.
    ///
    /// # Errors
    /// `Usage` for a file that cannot be read, is not TOML, or has an unknown key.
    pub(crate) fn explain(&self, environment: Environment<'_>) -> Result<Vec<Explained>, Usage> {
        let sources = self.sources(environment)?;
        Ok(T::ROWS.iter().map(|setting| explained(setting, &sources)).collect())
    }

    /// The flags of another table: only the same file.
    pub(crate) fn file_for<O: Table>(&self) -> FlagsOf<O> {
        let mut flags = FlagsOf::default();
        flags.config.clone_from(&self.config);
        flags
    }
}

fn explained(setting: &'static Setting, sources: &Sources<'_>) -> Explained {
    let (value, given) = sources.text_of(setting);
    let (source, given_as) = match given {
        Source::Flag => ("flag", format!("--{}", setting.flag())),
        Source::Environment(name) => ("environment", name),
        Source::File(name) => ("file", name),
        Source::Default => ("default", String::new()),
    };
    Explained {
        key: setting.key,
        value: without_password(&value),
        source,
        given_as,
        default: setting.default,
        about: setting.doc.trim(),
    }
}

/// The replacement of a password.
const HIDDEN: &str = "***";

/// A URL without its passwords, before the host or in a parameter. Other text is returned unchanged.
///
/// A password may have any character as itself, also those that end the host or the path for others. So what lies between
/// the first colon and the last `@` is hidden, wherever that is: rather too much than a part of a password.
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let mut secrets = secret_parameters(rest);
    if let Some(at) = rest.rfind('@')
        && let Some(colon) = rest[..at].find(':')
    {
        secrets.push(colon + 1..at);
    }
    secrets.sort_by_key(|secret| secret.start);
    let (mut shown, mut told) = (format!("{scheme}://"), 0);
    for secret in secrets {
        // A secret that begins inside another one is hidden already.
        if let Some(before) = rest.get(told..secret.start) {
            shown.push_str(before);
            shown.push_str(HIDDEN);
        }
        told = told.max(secret.end);
    }
    shown + rest.get(told..).unwrap_or_default()
}

/// The ranges of parameter values that are passwords.
fn secret_parameters(rest: &str) -> Vec<Range<usize>> {
    let starts = rest.match_indices(['?', '&']).map(|(at, _)| at + 1);
    let values = starts.filter_map(|start| {
        let end = rest[start..].find('&').map_or(rest.len(), |length| start + length);
        let (name, _) = rest[start..end].split_once('=')?;
        let is_secret = name.to_ascii_lowercase().contains("password");
        is_secret.then_some(start + name.len() + 1..end)
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Flags, Settings};
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (given, told) in [
            ("valkey://h:6379/1", "valkey://h:6379/1"),
            ("valkey://user@h", "valkey://user@h"),
            ("rediss://:s3cret@h/0?tls_ca=a", "rediss://:***@h/0?tls_ca=a"),
            ("postgres://u:p@ss@h/d", "postgres://u:***@h/d"),
            (
                "postgres://h/d?user=u&password=s3cret",
                "postgres://h/d?user=u&password=***",
            ),
            // Whatever a password has in it: rather too much is hidden than a part of it told.
            ("postgres://u:p/ss@h/d", "postgres://u:***@h/d"),
            ("valkey://:pa?ss@h/0", "valkey://:***@h/0"),
            ("valkey://:p#a/s?s@h/0?tls=true", "valkey://:***@h/0?tls=true"),
            ("postgres://u:a?password=b@h/d", "postgres://u:***"),
            (
                "postgres://h:5432/d?password=p@ss&sslmode=require",
                "postgres://h:***&sslmode=require",
            ),
            (
                "postgres://h/d?password=p@s&PASSWORD=t",
                "postgres://h/d?password=***&PASSWORD=***",
            ),
            (
                "valkey-sentinel://h,i/m?sentinel_password=p@s#t",
                "valkey-sentinel://h,i/m?sentinel_password=***",
            ),
            ("sqlite:a@b:c", "sqlite:a@b:c"),
            ("", ""),
        ] {
            assert_eq!(without_password(given), told);
        }
    }

    #[test]
    fn each_value_is_shown_with_its_source() {
        let flags = Flags::of(None, &[("max_ttl", "1m")]);
        let environment = |name: &str| (name == "TENURE_DRAIN").then(|| "3s".to_owned());
        let told = flags.explain(&environment).unwrap();
        assert_eq!(told.len(), Settings::ROWS.len());
        let of = |key: &str| {
            let one = told.iter().find(|one| one.key == key).unwrap();
            (one.value.as_str(), one.source, one.given_as.as_str())
        };
        assert_eq!(of("max_ttl"), ("1m", "flag", "--max-ttl"));
        assert_eq!(of("drain"), ("3s", "environment", "TENURE_DRAIN"));
        assert_eq!(of("janitor.interval"), ("60s", "default", ""));
    }
}
