//! Writes from the ledger to the mirror.

use super::check_items;
use crate::error::{Error, Result};
use crate::id::{ProviderId, Term};
use crate::ledger::{Dirty, Provider, Version, check_tenure};

/// An entry of the mirror: a row or a removal, as in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorEntry {
    /// A row. Its heartbeat is ignored, because the store has the newer one.
    Row(Provider),
    /// A removal.
    Gone {
        /// The provider.
        provider: ProviderId,
        /// The version of the removal.
        version: Version,
    },
}

impl MirrorEntry {
    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &ProviderId {
        match self {
            Self::Row(row) => &row.provider,
            Self::Gone { provider, .. } => provider,
        }
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Row(row) => row.version,
            Self::Gone { version, .. } => *version,
        }
    }
}

impl From<Dirty> for MirrorEntry {
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

/// What a write may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Any older version, or nothing.
    #[default]
    Older,
    /// Exactly this version, even a newer or equal one: the mirror or the ledger lost data, and the ledger wins.
    /// [`Version::NONE`] means nothing.
    Exactly(Version),
}

impl Overwrite {
    /// Whether a version may overwrite the present one; `None` means nothing is present.
    #[must_use]
    pub fn allows(self, there: Option<Version>, version: Version) -> bool {
        match self {
            Self::Older => there.is_none_or(|there| there < version),
            Self::Exactly(exact) => there.unwrap_or(Version::NONE) == exact,
        }
    }
}

/// An entry to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The entry.
    pub entry: MirrorEntry,
    /// What it may overwrite.
    pub over: Overwrite,
}

impl Put {
    /// An entry that overwrites an older version.
    #[must_use]
    pub fn newer(entry: MirrorEntry) -> Self {
        Self {
            entry,
            over: Overwrite::Older,
        }
    }
}

/// The state of a row's tenure in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The row names no tenure, or there is no row.
    Offline,
    /// It is alive.
    Alive,
    /// It has ended, and the ledger must apply that.
    Ended,
    /// The store does not know it: the ledger created it during an outage of the store, or the store lost its data.
    /// Call [`RosterMirror::ensure_tenures`](super::RosterMirror::ensure_tenures), and update the ledger.
    Unknown,
}

/// The result of writing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOutcome {
    /// Whether it was written.
    pub applied: bool,
    /// The present version, also of a removal; [`Version::NONE`] means nothing.
    pub version: Version,
    /// The state of the tenure that the present row names.
    pub standing: Standing,
}

/// Rejects what a mirror cannot store: too many entries, a version of 2^53 or above, and a row whose tenure belongs to
/// another provider.
///
/// # Errors
/// `Invalid`, with the value.
pub fn check_puts(puts: &[Put]) -> Result<()> {
    check_items(puts.len())?;
    for put in puts {
        check_versions(put.entry.version(), put.over)?;
        if let MirrorEntry::Row(row) = &put.entry {
            check_tenure(&row.provider, row.online.as_ref())?;
        }
    }
    Ok(())
}

/// Rejects a version of 2^53 or above, which Lua cannot represent exactly.
///
/// # Errors
/// `Invalid`, with the number.
pub(crate) fn check_versions(version: Version, over: Overwrite) -> Result<()> {
    let over = match over {
        Overwrite::Older => Version::NONE,
        Overwrite::Exactly(over) => over,
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
    fn versions_and_tenures_of_entries_are_checked() {
        let gone = |version, over| Put {
            entry: MirrorEntry::Gone {
                provider: ProviderId::new("ann").unwrap(),
                version: Version(version),
            },
            over,
        };
        let row = |online: &str| {
            Put::newer(MirrorEntry::Row(Provider {
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
        assert!(check_puts(&[gone(last.0, Overwrite::Exactly(last)), row("ann@1")]).is_ok());
        for refused in [
            gone(after.0, Overwrite::Older),
            gone(1, Overwrite::Exactly(after)),
            row("bob@1"),
        ] {
            assert!(check_puts(&[row("ann@1"), refused]).is_err());
        }
    }
}
