//! Owners: how an entry names its own, and what a pass knows about each.

use std::collections::BTreeMap;

use tenure_core::error::{Error, ErrorKind, Result};

/// The longest id of an owner, in bytes. What is longer is no id.
pub const MAX_OWNER: usize = 512;
/// The most owners in one hash. More means that its values are no ids.
pub const MAX_OWNERS: usize = 100_000;

/// Where in an entry's value the owner's id stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OwnerAt {
    /// The value is the id, byte for byte.
    #[default]
    Value,
    /// The value is JSON, and the id is the string or number at this place of it (a JSON pointer, like `/instance`).
    Pointer(String),
}

impl OwnerAt {
    /// Reads a JSON pointer.
    ///
    /// # Errors
    /// `Invalid` when it does not begin with `/`.
    pub fn pointer(pointer: &str) -> Result<Self> {
        if !pointer.starts_with('/') {
            return Err(Error::invalid(format!(
                "{pointer:?} is not a place in a JSON value; write it like /instance or /owner/id"
            )));
        }
        Ok(Self::Pointer(pointer.to_owned()))
    }

    /// The owner that a value names. `None` when it names none: it is empty, too long, or not of that form.
    pub(crate) fn owner(&self, value: &[u8]) -> Option<Vec<u8>> {
        let owner = match self {
            Self::Value => value.to_vec(),
            Self::Pointer(pointer) => {
                let json: serde_json::Value = serde_json::from_slice(value).ok()?;
                match json.pointer(pointer)? {
                    serde_json::Value::String(id) => id.clone().into_bytes(),
                    serde_json::Value::Number(id) => id.to_string().into_bytes(),
                    _ => return None,
                }
            }
        };
        (!owner.is_empty() && owner.len() <= MAX_OWNER).then_some(owner)
    }
}

/// What a look at an owner's heartbeat key showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// There is none.
    Absent,
    /// It is there and will go by itself.
    Beating,
    /// It is there and has no ttl, so that its owner can never count as dead.
    Endless,
}

impl Pulse {
    /// From the character that the look script answers.
    pub(crate) fn read(mark: u8) -> Option<Self> {
        match mark {
            b'-' => Some(Self::Absent),
            b'+' => Some(Self::Beating),
            b'=' => Some(Self::Endless),
            _ => None,
        }
    }
}

/// The owners that one scan of a hash came across.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    known: BTreeMap<Vec<u8>, (Pulse, u64)>,
}

impl Owners {
    /// Counts an entry of an owner that was looked at already; `false` when it was not.
    pub(crate) fn count(&mut self, owner: &[u8]) -> bool {
        let Some((_, entries)) = self.known.get_mut(owner) else {
            return false;
        };
        *entries += 1;
        true
    }

    /// Takes what a look showed.
    ///
    /// # Errors
    /// `Misconfigured` when there are more than [`MAX_OWNERS`].
    pub(crate) fn learn(&mut self, owner: Vec<u8>, pulse: Pulse) -> Result<()> {
        if self.known.len() >= MAX_OWNERS && !self.known.contains_key(&owner) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the hash names more than {MAX_OWNERS} owners; is the id of the owner the whole value, or a part \
                     of it (--owner-pointer)?"
                ),
            ));
        }
        self.known.entry(owner).or_insert((pulse, 0)).0 = pulse;
        Ok(())
    }

    /// Whether an owner's heartbeat key was absent. `None` for an owner that was not looked at.
    pub(crate) fn is_absent(&self, owner: &[u8]) -> Option<bool> {
        self.known.get(owner).map(|(pulse, _)| *pulse == Pulse::Absent)
    }

    /// Those without a heartbeat key, with how many entries name them, in byte order.
    pub(crate) fn absent(&self) -> BTreeMap<Vec<u8>, u64> {
        self.known
            .iter()
            .filter(|(_, (pulse, _))| *pulse == Pulse::Absent)
            .map(|(owner, (_, entries))| (owner.clone(), *entries))
            .collect()
    }

    /// How many showed this.
    pub(crate) fn with(&self, pulse: Pulse) -> u64 {
        self.known.values().filter(|(shown, _)| *shown == pulse).count() as u64
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.known.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_id_unless_a_pointer_says_where_it_stands() {
        assert_eq!(OwnerAt::Value.owner(b"i/1 \xff"), Some(b"i/1 \xff".to_vec()));
        assert_eq!(OwnerAt::Value.owner(b""), None);
        assert_eq!(OwnerAt::Value.owner(&[b'x'; MAX_OWNER + 1]), None);
        let at = OwnerAt::pointer("/owner/id").unwrap();
        for (value, owner) in [
            (r#"{"owner":{"id":"a b"},"since":1}"#, Some("a b")),
            (r#"{"owner":{"id":7}}"#, Some("7")),
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
        assert!(OwnerAt::pointer("owner").unwrap_err().to_string().contains("/instance"));
    }

    #[test]
    fn owners_are_counted_once_they_were_looked_at() {
        let mut owners = Owners::default();
        assert!(!owners.count(b"a"));
        owners.learn(b"a".to_vec(), Pulse::Absent).unwrap();
        owners.learn(b"b".to_vec(), Pulse::Endless).unwrap();
        assert!(owners.count(b"a") && owners.count(b"a") && owners.count(b"b"));
        assert_eq!(owners.absent(), BTreeMap::from([(b"a".to_vec(), 2)]));
        assert_eq!(
            (owners.len(), owners.with(Pulse::Endless), owners.with(Pulse::Beating)),
            (2, 1, 0)
        );
        assert_eq!(
            (owners.is_absent(b"a"), owners.is_absent(b"b"), owners.is_absent(b"c")),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn a_hash_whose_values_are_no_ids_is_noticed() {
        let mut owners = Owners::default();
        for n in 0..MAX_OWNERS {
            owners.learn(n.to_string().into_bytes(), Pulse::Absent).unwrap();
        }
        owners.learn(b"0".to_vec(), Pulse::Beating).unwrap();
        let error = owners.learn(b"one more".to_vec(), Pulse::Absent).unwrap_err();
        assert!(error.to_string().contains("--owner-pointer"), "{error}");
    }
}
