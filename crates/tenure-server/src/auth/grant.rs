//! A token of the file: its scopes, restriction and expiry.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tenure_core::id::{Group, RosterName};
use tenure_core::roster::roster_of;
use tenure_core::time::StoreTime;

use super::scope::Scopes;
use super::secret::Hash;

/// Names of groups or rosters: exact, or a prefix followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamePatterns(pub(super) Vec<String>);

impl NamePatterns {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        })
    }
}

/// A token of the file.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(super) name: String,
    pub(super) hash: Hash,
    pub(super) scopes: Scopes,
    /// The groups and rosters it is restricted to; `None` when it is valid everywhere.
    pub(super) only: Option<Restriction>,
    pub(super) expires: Option<StoreTime>,
    /// When its next request is due, for the rate limit.
    pub(crate) due: AtomicU64,
}

/// The groups and rosters that a restricted token is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restriction {
    pub(super) groups: NamePatterns,
    pub(super) rosters: NamePatterns,
}

impl Grant {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_for_group(&self, group: &Group) -> bool {
        self.is_for(group.as_str())
    }

    pub(super) fn is_for_roster(&self, roster: &RosterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.rosters.has(roster.as_str()))
    }

    /// Whether it is valid for a group as written in a path. The group of a roster is matched by the roster's name, so that a
    /// token for all groups does not reach into rosters.
    pub(super) fn is_for(&self, group: &str) -> bool {
        let Some(only) = &self.only else {
            return true;
        };
        match Group::new(group).ok().as_ref().and_then(roster_of) {
            Some(roster) => only.rosters.has(roster.as_str()),
            None => only.groups.has(group),
        }
    }

    pub(super) fn has_expired(&self, now: impl FnOnce() -> StoreTime) -> bool {
        self.expires.is_some_and(|expires| now() >= expires)
    }

    fn is_the_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.hash == other.hash
            && self.scopes == other.scopes
            && self.only == other.only
            && self.expires == other.expires
    }
}

/// All tokens of the file, by hash.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Arc<Grant>>);

impl Grants {
    /// Sorts them. An unchanged token keeps its object, and with it its rate limit.
    pub(super) fn new(mut grants: Vec<Grant>, before: &Self) -> Self {
        grants.sort_unstable_by_key(|grant| grant.hash.place());
        let keep = |grant: Grant| match before.of(&grant.hash) {
            Some(known) if known.is_the_same(&grant) => Arc::clone(known),
            _ => Arc::new(grant),
        };
        Self(grants.into_iter().map(keep).collect())
    }

    /// The token with this hash. O(log tokens).
    pub(super) fn of(&self, hash: &Hash) -> Option<&Arc<Grant>> {
        let place = hash.place();
        let from = self.0.partition_point(|grant| grant.hash.place() < place);
        let near = self.0[from..].iter().take_while(|grant| grant.hash.place() == place);
        near.fold(
            None,
            |found, grant| if grant.hash.is(hash) { Some(grant) } else { found },
        )
    }

    /// Whether this exact token is still in the file.
    pub(super) fn has(&self, grant: &Arc<Grant>) -> bool {
        self.of(&grant.hash).is_some_and(|known| Arc::ptr_eq(known, grant))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
