//! Templates of heartbeat keys, with a placeholder for the owner's id.

use tenure_core::error::{Error, ErrorKind, Result};

use crate::slot::{slot, tag_in};
use crate::text;

const PLACE: &str = "{id}";

/// Converts an owner's id to its heartbeat key: `instance:heartbeat:{id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Heartbeat {
    /// Parses a template, which contains `{id}` exactly once.
    ///
    /// # Errors
    /// `Invalid` for no placeholder or several.
    pub fn parse(template: &str) -> Result<Self> {
        let refused = |why: &str| {
            Error::invalid(format!(
                "the heartbeat template {template:?} {why}; write the name of a heartbeat key with {PLACE} where the \
                 owner's id goes, like instance:heartbeat:{PLACE}"
            ))
        };
        let (before, after) = template
            .split_once(PLACE)
            .ok_or_else(|| refused("has no placeholder"))?;
        if after.contains(PLACE) {
            return Err(refused("has several placeholders"));
        }
        Ok(Self {
            before: before.into(),
            after: after.into(),
        })
    }

    /// The heartbeat key of an owner.
    #[must_use]
    pub fn key(&self, owner: &[u8]) -> Vec<u8> {
        [&self.before, owner, &self.after].concat()
    }

    /// The slot of every heartbeat key, if a hash tag that does not depend on the id pins the template to one.
    fn slot(&self) -> Option<u16> {
        if self.before.contains(&b'{') {
            // The first `{` decides: if its `}` follows the id, the id is part of the tag.
            return tag_in(&self.before).map(|_| slot(&self.before));
        }
        tag_in(&self.after).map(|_| slot(&self.after))
    }

    /// Rejects a hash and heartbeats in different cluster slots, which one atomic step cannot access.
    ///
    /// # Errors
    /// `Misconfigured`, with the reason.
    pub(crate) fn check_slots(&self, hash: &[u8]) -> Result<()> {
        let ours = slot(hash);
        let why = match self.slot() {
            Some(theirs) if theirs == ours => return Ok(()),
            Some(theirs) => format!("the hash is in slot {ours} and the heartbeats are in slot {theirs}"),
            None => format!("the hash is in slot {ours} and each heartbeat is in a slot of its own"),
        };
        Err(Error::new(
            ErrorKind::Misconfigured,
            format!(
                "the store is a cluster, where one step can only look at keys of one slot, but {why}; give {:?} and \
                 {:?} the same hash tag, like {{fleet}}:registry and {{fleet}}:heartbeat:{PLACE}",
                text(hash),
                self.to_string(),
            ),
        ))
    }
}

impl std::fmt::Display for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{PLACE}{}", text(&self.before), text(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_replaces_the_placeholder_byte_for_byte() {
        let heartbeat = Heartbeat::parse("instance:{id}:alive").unwrap();
        assert_eq!(heartbeat.key(b"a/b \xff"), b"instance:a/b \xff:alive");
        assert_eq!(heartbeat.to_string(), "instance:{id}:alive");
        assert_eq!(Heartbeat::parse("{id}").unwrap().key(b"x"), b"x");
    }

    #[test]
    fn template_without_exactly_one_placeholder_is_rejected() {
        for bad in ["instance:heartbeat", "", "{ID}", "{id}:{id}", "{id"] {
            let error = Heartbeat::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{bad:?}")) && error.contains("instance:heartbeat:{id}"),
                "{error}"
            );
        }
    }

    #[test]
    fn cluster_requires_hash_and_heartbeats_in_one_slot() {
        for (hash, template) in [
            ("{fleet}:registry", "{fleet}:hb:{id}"),
            ("{fleet}:registry", "hb:{fleet}:{id}"),
            ("{fleet}:registry", "hb:{id}:{fleet}"),
            ("fleet", "{fleet}:hb:{id}"),
        ] {
            let checked = Heartbeat::parse(template).unwrap().check_slots(hash.as_bytes());
            assert!(checked.is_ok(), "{hash} {template}: {checked:?}");
        }
        for (hash, template, why) in [
            ("connections:registry", "instance:heartbeat:{id}", "slot of its own"),
            ("{fleet}:registry", "{other}:hb:{id}", "are in slot"),
            // The id itself is the tag.
            ("{fleet}:registry", "hb:{{id}}:{fleet}", "slot of its own"),
            ("{fleet}:registry", "{}:hb:{id}:{fleet}", "slot of its own"),
        ] {
            let error = Heartbeat::parse(template)
                .unwrap()
                .check_slots(hash.as_bytes())
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(
                error.to_string().contains(why) && error.to_string().contains("hash tag"),
                "{hash} {template}: {error}"
            );
        }
    }
}
