//! The names of other programs' keys: a pattern with the place of a target's name in it.

use std::fmt;

use tenure_core::error::{Error, Result};

use crate::adopt::text;

const PLACE: &str = "{target}";

/// How to get from a target to the name of its key and back: `poll:lease:{target}`, or `poll:lease:*`.
///
/// Everything but the one place of the target is meant literally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl KeyPattern {
    /// Reads a pattern, which has `{target}` in exactly one place, or, without it, exactly one `*`.
    ///
    /// # Errors
    /// `Invalid` when it has none or several.
    pub fn parse(pattern: &str) -> Result<Self> {
        let refused = |why: &str| {
            Error::invalid(format!(
                "the key pattern {pattern:?} {why}; write the name of a key with {PLACE} or one * where the target's name \
                 goes, like poll:lease:{PLACE}"
            ))
        };
        let place = if pattern.contains(PLACE) { PLACE } else { "*" };
        let (before, after) = pattern
            .split_once(place)
            .ok_or_else(|| refused("does not say where the target goes"))?;
        if after.contains(place) {
            return Err(refused("has the target in several places"));
        }
        Ok(Self {
            before: before.into(),
            after: after.into(),
        })
    }

    /// The key of a target.
    #[must_use]
    pub fn key(&self, target: &str) -> Vec<u8> {
        [&self.before, target.as_bytes(), &self.after].concat()
    }

    /// The target of a key, when the key is one of this pattern.
    #[must_use]
    pub fn target<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.before.as_slice())?
            .strip_suffix(self.after.as_slice())
    }

    /// What a server understands as this pattern.
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
        write!(f, "{}{PLACE}{}", text(&self.before), text(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_goes_into_its_key_and_comes_out_of_it() {
        for pattern in ["poll:lease:{target}", "poll:lease:*"] {
            let pattern = KeyPattern::parse(pattern).unwrap();
            assert_eq!(pattern.key("a:1"), b"poll:lease:a:1");
            assert_eq!(pattern.target(b"poll:lease:a:1"), Some(&b"a:1"[..]));
            assert_eq!(pattern.target(b"poll:leases:a"), None);
            assert_eq!(pattern.to_string(), "poll:lease:{target}");
        }
        let both = KeyPattern::parse("{fleet}:{target}:lease").unwrap();
        assert_eq!(both.key("x"), b"{fleet}:x:lease");
        assert_eq!(both.target(b"{fleet}:x:lease"), Some(&b"x"[..]));
        // Before and after do not overlap.
        let tight = KeyPattern::parse("aba{target}bab").unwrap();
        assert_eq!(tight.target(b"abab"), None);
        assert_eq!(tight.target(b"ababab"), Some(&b""[..]));
    }

    #[test]
    fn a_pattern_without_one_place_for_the_target_is_refused() {
        for bad in ["poll:lease", "", "a:*:*", "{target}:{target}", "{TARGET}", "a:?"] {
            let error = KeyPattern::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{bad:?}")) && error.contains("poll:lease:{target}"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_server_sees_nothing_but_the_targets_place_as_a_wildcard() {
        let glob = |pattern| String::from_utf8(KeyPattern::parse(pattern).unwrap().glob()).unwrap();
        assert_eq!(glob("poll:lease:*"), "poll:lease:*");
        // Next to {target} a star is a star.
        assert_eq!(glob("a*[b]?\\{target}-"), "a\\*\\[b\\]\\?\\\\*\\-");
    }
}
