//! What can be asked about.

use std::fmt;

use tenure_core::error::{Error, Result};
use tenure_core::id::{Key, MemberId, RegistryName, TenureId};

/// A member, a tenure or a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// All tenures of a member.
    Member(MemberId),
    /// One tenure.
    Tenure(TenureId),
    /// A key of a registry.
    Key(RegistryName, Key),
}

impl Subject {
    /// Reads `member`, `member@term` or `registry/key`.
    ///
    /// # Errors
    /// `Invalid`, naming the three forms.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = if let Some((registry, key)) = text.split_once('/') {
            RegistryName::new(registry).and_then(|registry| Ok(Self::Key(registry, Key::new(key)?)))
        } else if text.contains('@') {
            text.parse().map(Self::Tenure)
        } else {
            MemberId::new(text).map(Self::Member)
        };
        parsed.map_err(|error| {
            let forms = "ask about a member (NAME), a tenure (NAME@TERM) or a key (REGISTRY/KEY)";
            Error::invalid(format!("{error}; {forms}"))
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "member {member}"),
            Self::Tenure(tenure) => write!(f, "tenure {tenure}"),
            Self::Key(registry, key) => write!(f, "key {registry}/{key}"),
        }
    }
}
