//! What the ledger tells the mirror.

use crate::id::ProviderId;
use crate::ledger::{Dirty, Provider, Version};

/// A state of a provider, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A row. When it was heard of is not part of it here: the store knows better.
    Row(Provider),
    /// It was removed.
    Gone {
        /// Who.
        provider: ProviderId,
        /// The version of the removal.
        version: Version,
    },
}

impl Entry {
    /// Whose.
    #[must_use]
    pub fn provider(&self) -> &ProviderId {
        match self {
            Self::Row(row) => &row.provider,
            Self::Gone { provider, .. } => provider,
        }
    }

    /// Which version.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Row(row) => row.version,
            Self::Gone { version, .. } => *version,
        }
    }
}

impl From<Dirty> for Entry {
    fn from(dirty: Dirty) -> Self {
        match dirty.row {
            Some(row) => Self::Row(row),
            None => Self::Gone {
                provider: dirty.provider,
                version: dirty.version,
            },
        }
    }
}

/// Over what an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Over {
    /// Whatever is older; nothing at all is older than everything.
    #[default]
    Older,
    /// Exactly this version, though it be newer or equal: one of the two lost data, and the ledger wins.
    /// [`Version::NONE`] is nothing at all.
    Exactly(Version),
}

impl Over {
    /// Whether something of a version is written over what is there; `None` is nothing at all.
    #[must_use]
    pub fn allows(self, there: Option<Version>, version: Version) -> bool {
        match self {
            Self::Older => there.is_none_or(|there| there < version),
            Self::Exactly(exact) => there.unwrap_or(Version::NONE) == exact,
        }
    }
}

/// An entry to take over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What.
    pub entry: Entry,
    /// Over what.
    pub over: Over,
}

impl Put {
    /// An entry that is written over whatever is older.
    #[must_use]
    pub fn newer(entry: Entry) -> Self {
        Self {
            entry,
            over: Over::Older,
        }
    }
}

/// How a row's tenure stands with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The row names none, or there is no row.
    Offline,
    /// It is alive.
    Alive,
    /// It has ended, and the ledger has to follow.
    Ended,
    /// The store knows nothing of it: the ledger made it up while the store was away, or the store lost its data. Seat the
    /// provider, and let the ledger follow.
    Unknown,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOutcome {
    /// Whether it was taken over.
    pub applied: bool,
    /// The version that is there now, a removal's too; [`Version::NONE`] for nothing at all.
    pub version: Version,
    /// How the tenure stands that the row names that is there now.
    pub standing: Standing,
}
