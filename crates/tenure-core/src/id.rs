//! Names: groups, members, registries, keys, and the tenure id.
//!
//! A name is 1 to 200 characters of `A-Z a-z 0-9 . _ : -`. The alphabet excludes `/`, `@`, `{` and `}`, which stores
//! use as separators, so a name cannot be confused with a part of a key. `.` and `..` are invalid, because URL paths
//! give them another meaning in every encoding.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::time::StoreTime;

/// The maximum length of a name, in bytes and characters (the alphabet is ASCII).
pub const MAX_NAME: usize = 200;

/// Checks a name.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with the value, the first invalid character and the rule.
pub fn check_name(what: &str, name: &str) -> Result<(), Error> {
    const RULE: &str = "use 1 to 200 characters of A-Z a-z 0-9 . _ : -";
    // Batches check names by the ten thousand, and nearly all are valid: bytes first, characters only for the error.
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(good) {
        return match name {
            "." | ".." => Err(Error::invalid(format!(
                "the {what} {name:?} has a special meaning in a URL path; {RULE}, but neither . nor .."
            ))),
            _ => Ok(()),
        };
    }
    if name.is_empty() {
        return Err(Error::invalid(format!("the {what} is empty; {RULE}")));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if let Some((at, bad)) = name.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        let shown: String = name.chars().take(MAX_NAME).collect();
        return Err(Error::invalid(format!(
            "the {what} {shown:?} has {bad:?} at position {}; {RULE}",
            at + 1
        )));
    }
    if name.len() > MAX_NAME {
        return Err(Error::invalid(format!(
            "the {what} is {} characters long; {RULE}",
            name.len()
        )));
    }
    Ok(())
}

/// The smallest valid first character.
static FIRST: LazyLock<Arc<str>> = LazyLock::new(|| "-".into());

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $type(Arc<str>);

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                // Equal names in large sets often share their text, so a pointer comparison avoids reading it.
                match Arc::ptr_eq(&self.0, &other.0) {
                    true => Ordering::Equal,
                    false => self.0.cmp(&other.0),
                }
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $type {
            /// Checks and takes a name.
            ///
            /// # Errors
            /// `Invalid`, with the first invalid character.
            pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
                let name = name.as_ref();
                check_name($what, name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The smallest name, for the start of an open range.
            #[allow(dead_code, reason = "not every kind of name is the last part of a key")]
            pub(crate) fn first() -> Self {
                Self(Arc::clone(&FIRST))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($type), self.0)
            }
        }

        impl FromStr for $type {
            type Err = Error;
            fn from_str(name: &str) -> Result<Self, Error> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $type {
            type Error = Error;
            fn try_from(name: String) -> Result<Self, Error> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parsed(deserializer)
            }
        }
    };
}

name!(
    /// A group: the unit of atomicity for its members and their holdings.
    Group, "group"
);
name!(
    /// A named participant of a group. The name outlives its tenures and survives restarts.
    MemberId, "member"
);
name!(
    /// A registry: a map from keys to the members that own them.
    RegistryName, "registry"
);
name!(
    /// A key of a registry, for example a device.
    Key, "key"
);
name!(
    /// A lease, named after its target.
    LeaseName, "lease"
);
name!(
    /// One run of one process that holds connections of waiting requests; drawn at its start.
    NodeId, "node"
);
name!(
    /// A session.
    SessionId, "session"
);
name!(
    /// One connection of a session.
    ConnectionId, "connection"
);
name!(
    /// An alternative name of a session, unique in its group: a broadcaster, a user.
    Alias, "alias"
);
name!(
    /// A roster: providers, their availability and their engagements.
    RosterName, "roster"
);
name!(
    /// A provider: a person or worker who takes work. Its member in the roster's group has the same name.
    ProviderId, "provider"
);
name!(
    /// An engagement: one work item of one provider.
    EngagementId, "engagement"
);

impl ProviderId {
    /// The provider's member, whose tenure is its time online.
    #[must_use]
    pub fn member(&self) -> MemberId {
        MemberId(Arc::clone(&self.0))
    }
}

impl From<&MemberId> for ProviderId {
    fn from(member: &MemberId) -> Self {
        Self(Arc::clone(&member.0))
    }
}

impl MemberId {
    /// The host part of a generated id (`hostname-<start ns>-<8 hex>`), or the whole name otherwise. For metric labels,
    /// which must not grow with every process start.
    #[must_use]
    pub fn host(&self) -> &str {
        let mut parts = self.0.rsplitn(3, '-');
        let (hex, start, host) = (parts.next(), parts.next(), parts.next());
        match (hex, start, host) {
            (Some(hex), Some(start), Some(host))
                if hex.len() == 8
                    && hex.bytes().all(|b| b.is_ascii_hexdigit())
                    && start.len() >= 10
                    && start.bytes().all(|b| b.is_ascii_digit())
                    && !host.is_empty() =>
            {
                host
            }
            _ => &self.0,
        }
    }
}

/// A strictly rising integer per group that makes a tenure unique.
///
/// The next term is `max(previous + 1, store time in µs)`. So it contains the start of the tenure, and it rises across
/// restarts and data loss. It stays below 2^53, so JSON parsers and Lua doubles represent it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(u64);

impl Term {
    /// The largest term: 2^53 − 1.
    pub const MAX: u64 = (1 << 53) - 1;
    /// The smallest term.
    pub(crate) const FIRST: Self = Self(1);

    /// Checks and takes a term.
    ///
    /// # Errors
    /// `Invalid` when it is 0 or above [`Term::MAX`].
    pub fn new(term: u64) -> Result<Self, Error> {
        if term == 0 || term > Self::MAX {
            return Err(Error::invalid(format!("the term {term} is outside 1..=2^53-1")));
        }
        Ok(Self(term))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One continuous stretch of a member being alive: `member@term`. Opaque to users.
///
/// Ids sort as text, so the tenures of a member are adjacent, and every store lists tenures in the same order.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TenureId {
    member: MemberId,
    term: Term,
}

impl TenureId {
    /// Builds a tenure id.
    #[must_use]
    pub fn new(member: MemberId, term: Term) -> Self {
        Self { member, term }
    }

    /// The member.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        &self.member
    }

    /// The term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The start of the tenure, from its term.
    #[must_use]
    pub fn began_at(&self) -> StoreTime {
        StoreTime::from_micros(self.term.get())
    }
}

impl Ord for TenureId {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.member.0, &other.member.0) {
            return by_digits(self.term.0, other.term.0);
        }
        let (one, two) = (self.member.0.as_bytes(), other.member.0.as_bytes());
        let common = one.len().min(two.len());
        one[..common].cmp(&two[..common]).then_with(|| {
            // Names contain no `@`, so it decides the order of a name and a longer one with the same prefix.
            match (two.get(common), one.get(common)) {
                (Some(next), _) => b'@'.cmp(next),
                (_, Some(next)) => next.cmp(&b'@'),
                (None, None) => by_digits(self.term.0, other.term.0),
            }
        })
    }
}

impl PartialOrd for TenureId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of two terms as decimal text.
fn by_digits(one: u64, two: u64) -> Ordering {
    let (long, longer) = (one.ilog10(), two.ilog10());
    match long.cmp(&longer) {
        Ordering::Equal => one.cmp(&two),
        Ordering::Less => (one * 10_u64.pow(longer - long)).cmp(&two).then(Ordering::Less),
        Ordering::Greater => one.cmp(&(two * 10_u64.pow(long - longer))).then(Ordering::Greater),
    }
}

impl fmt::Display for TenureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.member, self.term)
    }
}

impl fmt::Debug for TenureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenureId({self})")
    }
}

impl FromStr for TenureId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            let shown: String = text.chars().take(2 * MAX_NAME).collect();
            Error::invalid(format!(
                "{shown:?} is not a tenure id; use the `tenure` of a join, like member@1234567890"
            ))
        };
        let (member, term) = text.split_once('@').ok_or_else(bad)?;
        let digits = !term.is_empty() && term.bytes().all(|b| b.is_ascii_digit()) && !term.starts_with('0');
        let term = if digits {
            term.parse().map_err(|_| bad())?
        } else {
            return Err(bad());
        };
        Ok(Self {
            member: MemberId::new(member)?,
            term: Term::new(term)?,
        })
    }
}

impl TryFrom<String> for TenureId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<TenureId> for String {
    fn from(tenure: TenureId) -> String {
        tenure.to_string()
    }
}

impl Serialize for TenureId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TenureId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

/// Deserializes a checked name from the input text without an intermediate `String`; batches depend on it for speed.
fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = Error>,
{
    struct Name<T>(PhantomData<T>);
    impl<T: FromStr<Err = Error>> Visitor<'_> for Name<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Name(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_name_error_has_the_character_and_the_rule() {
        for (name, must_say) in [
            ("", "empty"),
            ("a b", "' ' at position 2"),
            ("é", "'é' at position 1"),
            ("a@1", "'@' at position 2"),
            ("{x}", "'{' at position 1"),
            ("a/b", "'/' at position 2"),
            ("a\0", "'\\0' at position 2"),
        ] {
            let error = MemberId::new(name).expect_err(name).to_string();
            assert!(error.contains(must_say) && error.contains("A-Z"), "{name:?}: {error}");
        }
        let long = "x".repeat(201);
        assert!(
            MemberId::new(&long)
                .expect_err("too long")
                .to_string()
                .contains("201 characters")
        );
        assert!(MemberId::new("x".repeat(200)).is_ok());
    }

    #[test]
    fn dot_and_dot_dot_are_invalid_names() {
        for name in [".", ".."] {
            let error = LeaseName::new(name).expect_err(name).to_string();
            assert!(error.contains("URL path") && error.contains("A-Z"), "{error}");
            assert!(format!("{name}@5").parse::<TenureId>().is_err(), "{name}");
        }
        for name in ["...", ".a", "a.", "..a", "-", ":"] {
            assert!(LeaseName::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn tenure_id_round_trips_as_text() {
        let tenure: TenureId = "pod-7:a.b_c@1763676800000000".parse().unwrap();
        assert_eq!(tenure.to_string(), "pod-7:a.b_c@1763676800000000");
        for bad in [
            "pod",
            "pod@",
            "@5",
            "pod@x",
            "pod@0",
            "pod@-1",
            "pod@+1",
            "pod@007",
            "pod@9007199254740992",
            "a@1@2",
        ] {
            assert!(bad.parse::<TenureId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tenure_ids_sort_as_text() {
        let members = ["a", "a-", "a.b", "a0", "a:", "aZ", "a_", "aa", "ab", "b", "-", "Z"];
        let terms = [
            1,
            2,
            9,
            10,
            19,
            90,
            99,
            100,
            901,
            Term::MAX / 10,
            Term::MAX - 1,
            Term::MAX,
        ];
        let all: Vec<TenureId> = members
            .iter()
            .flat_map(|member| terms.map(|term| format!("{member}@{term}").parse().unwrap()))
            .collect();
        for one in &all {
            for two in &all {
                assert_eq!(one.cmp(two), one.to_string().cmp(&two.to_string()), "{one} {two}");
            }
        }
    }

    #[test]
    fn host_of_a_generated_id_omits_start_and_nonce() {
        assert_eq!(
            MemberId::new("web-3-1763676800000000000-0a1b2c3d").unwrap().host(),
            "web-3"
        );
        assert_eq!(MemberId::new("web-3").unwrap().host(), "web-3");
        assert_eq!(MemberId::new("a-b-c").unwrap().host(), "a-b-c");
    }
}
