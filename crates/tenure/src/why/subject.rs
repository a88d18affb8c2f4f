//! What an explanation is about.

use std::fmt;

use tenure_core::error::{Error, Result};
use tenure_core::id::{Key, LeaseName, MemberId, RegistryName, SessionId, TenureId};

/// The prefix of a lease name, as in `--leader lease:NAME`.
const LEASE: &str = "lease:";
/// The prefix of a session id.
const SESSION: &str = "session:";

/// A member, a tenure, a key, a lease or a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// All tenures of a member.
    Member(MemberId),
    /// One tenure.
    Tenure(TenureId),
    /// A key of a registry.
    Key(RegistryName, Key),
    /// A lease, and the target of the same name.
    Lease(LeaseName),
    /// A session, including earlier sessions of the same name.
    Session(SessionId),
}

impl Subject {
    /// Parses `member`, `member@term`, `registry/key`, `lease:name` or `session:id`. A member whose name begins with
    /// `lease:` or `session:` can be given only by one of its tenures.
    ///
    /// # Errors
    /// `Invalid`, listing the five forms.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = if let Some((registry, key)) = text.split_once('/') {
            RegistryName::new(registry).and_then(|registry| Ok(Self::Key(registry, Key::new(key)?)))
        } else if text.contains('@') {
            text.parse().map(Self::Tenure)
        } else if let Some(lease) = text.strip_prefix(LEASE) {
            LeaseName::new(lease).map(Self::Lease)
        } else if let Some(session) = text.strip_prefix(SESSION) {
            SessionId::new(session).map(Self::Session)
        } else {
            MemberId::new(text).map(Self::Member)
        };
        parsed.map_err(|error| {
            let forms = "ask about a member (NAME), a tenure (NAME@TERM), a key (REGISTRY/KEY), a lease (lease:NAME) or a \
                         session (session:ID)";
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
            Self::Lease(lease) => write!(f, "lease {lease}"),
            Self::Session(session) => write!(f, "session {session}"),
        }
    }
}
