//! Key patterns of other programs: a text with a placeholder for a name.

use std::fmt;

use tenure_core::error::{Error, Result};

use crate::text;

/// The placeholders, in order of preference.
const PLACES: [&str; 3] = ["{target}", "{id}", "*"];

/// Converts a name to its key and back: `poll:lease:{target}`, `session:{id}` or `session:*`.
///
/// Everything except the one placeholder is literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    before: Vec<u8>,
    after: Vec<u8>,
    place: &'static str,
}

impl KeyPattern {
    /// Parses a pattern, which contains `{target}` or `{id}` exactly once, or otherwise exactly one `*`.
    ///
    /// # Errors
    /// `Invalid` for no placeholder or several.
    pub fn parse(pattern: &str) -> Result<Self> {
        let refused = |why: &str| {
            Error::invalid(format!(
                "the key pattern {pattern:?} {why}; write the name of a key with {{target}}, {{id}} or one * where the \
                 name goes, like poll:lease:{{target}} or session:*"
            ))
        };
        let found = PLACES.into_iter().find(|place| pattern.contains(place));
        let (place, (before, after)) = found
            .and_then(|place| Some((place, pattern.split_once(place)?)))
            .ok_or_else(|| refused("has no placeholder"))?;
        if after.contains(place) {
            return Err(refused("has several placeholders"));
        }
        Ok(Self {
            before: before.into(),
            after: after.into(),
            place,
        })
    }

    /// The key of a name.
    #[must_use]
    pub fn key(&self, name: impl AsRef<[u8]>) -> Vec<u8> {
        [&self.before, name.as_ref(), &self.after].concat()
    }

    /// The name in a key, if the key matches the pattern.
    #[must_use]
    pub fn name<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.before.as_slice())?
            .strip_suffix(self.after.as_slice())
    }

    /// The pattern in the server's glob syntax.
    pub(crate) fn glob(&self) -> Vec<u8> {
        let literally = |bytes: &[u8]| -> Vec<u8> {
            let escaped = bytes.iter().flat_map(|byte| match byte {
                b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-' => vec![b'\\', *byte],
                byte => vec![*byte],
            });
            escaped.collect()
        };
        [literally(&self.before), b"*".to_vec(), literally(&self.after)].concat()
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", text(&self.before), self.place, text(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_keys() {
        for pattern in ["poll:lease:{target}", "poll:lease:{id}", "poll:lease:*"] {
            let shown = pattern;
            let pattern = KeyPattern::parse(pattern).unwrap();
            assert_eq!(pattern.key("a:1"), b"poll:lease:a:1");
            assert_eq!(pattern.key(b"\xff"), b"poll:lease:\xff");
            assert_eq!(pattern.name(b"poll:lease:a:1"), Some(&b"a:1"[..]));
            assert_eq!(pattern.name(b"poll:leases:a"), None);
            assert_eq!(pattern.to_string(), shown);
        }
        let both = KeyPattern::parse("{fleet}:{target}:lease").unwrap();
        assert_eq!(both.key("x"), b"{fleet}:x:lease");
        assert_eq!(both.name(b"{fleet}:x:lease"), Some(&b"x"[..]));
        // Prefix and suffix do not overlap.
        let tight = KeyPattern::parse("aba{target}bab").unwrap();
        assert_eq!(tight.name(b"abab"), None);
        assert_eq!(tight.name(b"ababab"), Some(&b""[..]));
    }

    #[test]
    fn pattern_without_exactly_one_placeholder_is_rejected() {
        for bad in [
            "poll:lease",
            "",
            "a:*:*",
            "**",
            "{target}:{target}",
            "{id}:{id}",
            "{TARGET}",
            "a:?",
        ] {
            let error = KeyPattern::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{bad:?}")) && error.contains("poll:lease:{target}"),
                "{error}"
            );
        }
    }

    #[test]
    fn glob_escapes_everything_but_the_placeholder() {
        let glob = |pattern| String::from_utf8(KeyPattern::parse(pattern).unwrap().glob()).unwrap();
        assert_eq!(glob("poll:lease:*"), "poll:lease:*");
        // With {target}, a star is literal, and so are all other glob characters.
        assert_eq!(glob("a*[b]?\\{target}-"), "a\\*\\[b\\]\\?\\\\*\\-");
    }
}
