//! Owners: parsing them from entries, and the result of their checks.

use std::collections::BTreeMap;

use tenure_core::error::{Error, ErrorKind, Result};

use super::number;

/// The longest id of an owner, in bytes. A longer value is not an id.
pub const MAX_OWNER: usize = 512;
/// The most owners of one hash. More means that its values are not ids.
pub const MAX_OWNERS: usize = 100_000;

/// Where an entry's value contains the owner's id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OwnerAt {
    /// The value is the id, byte for byte.
    #[default]
    Value,
    /// The value is JSON, and this JSON pointer (like `/instance`) leads to the id, a string or a number.
    Pointer(String),
}

impl OwnerAt {
    /// Parses a JSON pointer.
    ///
    /// # Errors
    /// `Invalid` if it does not start with `/`.
    pub fn pointer(pointer: &str) -> Result<Self> {
        if !pointer.starts_with('/') {
            return Err(Error::invalid(format!(
                "{pointer:?} is not a JSON pointer; write it like /instance or /owner/id"
            )));
        }
        Ok(Self::Pointer(pointer.to_owned()))
    }

    /// The owner in a value. `None` if it is empty, too long or malformed. A number is its text, or its integer: `17.0`
    /// and `1.7e1` are 17.
    pub(crate) fn owner(&self, value: &[u8]) -> Option<Vec<u8>> {
        let owner = match self {
            Self::Value => value.to_vec(),
            Self::Pointer(pointer) => number::id_at(value, pointer)?.into_bytes(),
        };
        (!owner.is_empty() && owner.len() <= MAX_OWNER).then_some(owner)
    }

    /// The ids by which an owner may beat: for an integer in JSON also the text that a language without integers gives
    /// it. It is alive if one of them beats.
    pub(crate) fn spellings(&self, owner: &[u8]) -> Vec<Vec<u8>> {
        let is_integer = matches!(self, Self::Pointer(_)) && number::is_integer(owner);
        let as_float = is_integer.then(|| [owner, b".0"].concat());
        std::iter::once(owner.to_vec()).chain(as_float).collect()
    }
}

/// The state of an owner's heartbeat key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatState {
    /// The key does not exist.
    Absent,
    /// The key exists and has a ttl.
    Beating,
    /// The key exists without a ttl, so its owner can never count as dead.
    Endless,
}

impl HeartbeatState {
    /// The state of an owner by its heartbeat keys, one for each spelling of its id.
    pub(crate) fn of_all(states: &[Self]) -> Self {
        let has = |wanted| states.contains(&wanted);
        match (has(Self::Endless), has(Self::Beating)) {
            (true, _) => Self::Endless,
            (_, true) => Self::Beating,
            _ => Self::Absent,
        }
    }

    /// Parses the character that the look script returns.
    pub(crate) fn read(mark: u8) -> Option<Self> {
        match mark {
            b'-' => Some(Self::Absent),
            b'+' => Some(Self::Beating),
            b'=' => Some(Self::Endless),
            _ => None,
        }
    }
}

/// The owners found by one scan of a hash.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    known: BTreeMap<Vec<u8>, (HeartbeatState, u64)>,
}

impl Owners {
    /// Counts an entry of a checked owner. `false` if the owner was not checked.
    pub(crate) fn count(&mut self, owner: &[u8]) -> bool {
        let Some((_, entries)) = self.known.get_mut(owner) else {
            return false;
        };
        *entries += 1;
        true
    }

    /// Records the result of a check.
    ///
    /// # Errors
    /// `Misconfigured` for more than [`MAX_OWNERS`].
    pub(crate) fn learn(&mut self, owner: Vec<u8>, state: HeartbeatState) -> Result<()> {
        if self.known.len() >= MAX_OWNERS && !self.known.contains_key(&owner) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the hash names more than {MAX_OWNERS} owners; is the id of the owner the whole value, or a part \
                     of it (--owner-pointer)?"
                ),
            ));
        }
        self.known.entry(owner).or_insert((state, 0)).0 = state;
        Ok(())
    }

    /// Whether an owner's heartbeat key is absent. `None` if the owner was not checked.
    pub(crate) fn is_absent(&self, owner: &[u8]) -> Option<bool> {
        self.known.get(owner).map(|(state, _)| *state == HeartbeatState::Absent)
    }

    /// The owners without a heartbeat key and their numbers of entries, in byte order.
    pub(crate) fn absent(&self) -> BTreeMap<Vec<u8>, u64> {
        self.known
            .iter()
            .filter(|(_, (state, _))| *state == HeartbeatState::Absent)
            .map(|(owner, (_, entries))| (owner.clone(), *entries))
            .collect()
    }

    /// The number of owners in this state.
    pub(crate) fn with(&self, state: HeartbeatState) -> u64 {
        self.known.values().filter(|(shown, _)| *shown == state).count() as u64
    }

    /// The number of owners.
    pub(crate) fn len(&self) -> u64 {
        self.known.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_the_id_unless_a_pointer_is_set() {
        assert_eq!(OwnerAt::Value.owner(b"i/1 \xff"), Some(b"i/1 \xff".to_vec()));
        assert_eq!(OwnerAt::Value.owner(b""), None);
        assert_eq!(OwnerAt::Value.owner(&[b'x'; MAX_OWNER + 1]), None);
        let at = OwnerAt::pointer("/owner/id").unwrap();
        for (value, owner) in [
            (r#"{"owner":{"id":"a b"},"since":1}"#, Some("a b")),
            (r#"{"owner":{"id":7}}"#, Some("7")),
            (r#"{"owner":{"id":7.0}}"#, Some("7")),
            (r#"{"owner":{"id":null}}"#, None),
            (r#"{"owner":"a"}"#, None),
            (r#"{"owner":{"id":""}}"#, None),
            ("not json", None),
            ("", None),
        ] {
            assert_eq!(
                at.owner(value.as_bytes()),
                owner.map(|id| id.as_bytes().to_vec()),
                "{value}"
            );
        }
        assert_eq!(at.spellings(b"7"), [b"7".to_vec(), b"7.0".to_vec()]);
        assert_eq!(at.spellings(b"i-7"), [b"i-7".to_vec()]);
        assert_eq!(OwnerAt::Value.spellings(b"7"), [b"7".to_vec()]);
        assert!(OwnerAt::pointer("owner").unwrap_err().to_string().contains("/instance"));
    }

    #[test]
    fn only_checked_owners_are_counted() {
        let mut owners = Owners::default();
        assert!(!owners.count(b"a"));
        owners.learn(b"a".to_vec(), HeartbeatState::Absent).unwrap();
        owners.learn(b"b".to_vec(), HeartbeatState::Endless).unwrap();
        assert!(owners.count(b"a") && owners.count(b"a") && owners.count(b"b"));
        assert_eq!(owners.absent(), BTreeMap::from([(b"a".to_vec(), 2)]));
        assert_eq!(
            (
                owners.len(),
                owners.with(HeartbeatState::Endless),
                owners.with(HeartbeatState::Beating)
            ),
            (2, 1, 0)
        );
        assert_eq!(
            (owners.is_absent(b"a"), owners.is_absent(b"b"), owners.is_absent(b"c")),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn hash_with_too_many_owners_is_rejected() {
        let mut owners = Owners::default();
        for n in 0..MAX_OWNERS {
            owners
                .learn(n.to_string().into_bytes(), HeartbeatState::Absent)
                .unwrap();
        }
        owners.learn(b"0".to_vec(), HeartbeatState::Beating).unwrap();
        let error = owners.learn(b"one more".to_vec(), HeartbeatState::Absent).unwrap_err();
        assert!(error.to_string().contains("--owner-pointer"), "{error}");
    }
}
