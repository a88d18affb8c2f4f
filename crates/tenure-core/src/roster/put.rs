//! What the ledger tells the mirror.

use super::check_items;
use crate::error::{Error, Result};
use crate::id::{ProviderId, Term};
use crate::ledger::{Dirty, Provider, Version, check_tenure};

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

/// Refuses what no mirror could keep: too many, a version of 2^53 or above, and a row that is online under the tenure of
/// another one.
///
/// # Errors
/// `Invalid`, with what is wrong.
pub fn check_puts(puts: &[Put]) -> Result<()> {
    check_items(puts.len())?;
    for put in puts {
        check_versions(put.entry.version(), put.over)?;
        if let Entry::Row(row) = &put.entry {
            check_tenure(&row.provider, row.online.as_ref())?;
        }
    }
    Ok(())
}

/// Refuses a version of 2^53 or above: the script of a mirror could not tell it from another.
///
/// # Errors
/// `Invalid`, with the number.
pub(crate) fn check_versions(version: Version, over: Over) -> Result<()> {
    let over = match over {
        Over::Older => Version::NONE,
        Over::Exactly(over) => over,
    };
    let highest = version.max(over);
    if highest.0 > Term::MAX {
        return Err(Error::invalid(format!("the version {highest} is not below 2^53")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_end_below_2_pow_53_and_tenures_are_ones_own() {
        let gone = |version, over| Put {
            entry: Entry::Gone {
                provider: ProviderId::new("ann").unwrap(),
                version: Version(version),
            },
            over,
        };
        let row = |online: &str| {
            Put::newer(Entry::Row(Provider {
                provider: ProviderId::new("ann").unwrap(),
                display_name: None,
                active: true,
                online: Some(online.parse().unwrap()),
                capacity: 1,
                occupancy: 0,
                last_online_at: None,
                last_offline_at: None,
                last_heartbeat_at: None,
                revoked_before: None,
                version: Version(1),
            }))
        };
        let (last, after) = (Version(Term::MAX), Version(Term::MAX + 1));
        assert!(check_puts(&[gone(last.0, Over::Exactly(last)), row("ann@1")]).is_ok());
        for refused in [gone(after.0, Over::Older), gone(1, Over::Exactly(after)), row("bob@1")] {
            assert!(check_puts(&[row("ann@1"), refused]).is_err());
        }
    }
}
