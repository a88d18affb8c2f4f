//! Registries: the owner of each key.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, send};
use crate::error::{Error, Result};
use crate::id::{Group, Key, MemberId, RegistryName, TenureId};
use crate::membership::Revision;
use crate::store::{Backend, Call, Page, PageRequest};

/// The maximum number of keys in one call.
pub const MAX_KEYS: usize = 10_000;

/// Whether a claim takes a key from a living owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClaimMode {
    /// Takes the key from any owner: the device is now connected here.
    #[default]
    Take,
    /// Succeeds only if the key is free or owned by a dead tenure or an earlier tenure of the same member.
    IfAbsent,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The key was free.
    New,
    /// The same tenure already owned the key.
    Kept,
    /// The key moved from another tenure.
    Moved {
        /// The previous owner.
        from: TenureId,
    },
    /// With `IfAbsent`: a living tenure owns the key. Nothing changed.
    Held {
        /// The owner.
        by: TenureId,
    },
}

impl ClaimOutcome {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kept => "kept",
            Self::Moved { .. } => "moved",
            Self::Held { .. } => "held",
        }
    }
}

/// The reply to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// One outcome per key, in request order.
    pub outcomes: Vec<ClaimOutcome>,
    /// The revision of the tenure's holdings.
    pub revision: Revision,
    /// The revision before this call. If it is lower than the one the client received last, the store lost its tail.
    pub before: Revision,
}

/// The owner of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claim {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// The member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: MemberId,
    /// The tenure that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Whether that tenure is alive now; does not depend on the janitor.
    pub alive: bool,
}

/// Rejects too many keys.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_keys(keys: &[Key]) -> Result<()> {
    if keys.len() > MAX_KEYS {
        return Err(Error::invalid(format!(
            "{} keys in one call; at most {MAX_KEYS}",
            keys.len()
        )));
    }
    Ok(())
}

/// [`RegistryStore::claim`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimKeys {
    /// The registry.
    pub registry: RegistryName,
    /// The claiming tenure.
    pub tenure: TenureId,
    /// The keys; each has its own outcome.
    pub keys: Vec<Key>,
    /// Whether to take keys from living owners.
    pub mode: ClaimMode,
}

impl Limits for ClaimKeys {
    fn check(&self, _: Duration) -> Result<()> {
        check_keys(&self.keys)
    }
    fn items(&self) -> usize {
        self.keys.len()
    }
    fn empty_reply(&self) -> Option<Self::Reply> {
        self.keys.is_empty().then(Claimed::default)
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let keys = self.keys.split_off(at);
        Some(Self { keys, ..self.clone() })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        Claimed {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }
    }
}

/// [`RegistryStore::release_claim`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseClaim {
    /// The registry.
    pub registry: RegistryName,
    /// The key.
    pub key: Key,
    /// The owning tenure.
    pub tenure: TenureId,
}

/// [`RegistryStore::claim_of`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOf {
    /// The registry.
    pub registry: RegistryName,
    /// The key.
    pub key: Key,
}

/// [`RegistryStore::claims`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The registry.
    pub registry: RegistryName,
    /// Only the claims of this owner.
    pub owner: Option<MemberId>,
    /// The page.
    pub page: PageRequest,
}

/// The claims of a group.
#[async_trait]
pub trait RegistryStore: Backend {
    /// Claims keys for a living tenure. Each key has its own outcome, in request order. At most [`MAX_KEYS`]; applied
    /// in atomic parts of about 200. O(keys).
    ///
    /// # Errors
    /// `Ended` if the tenure is not alive: nothing changed in that part (earlier parts may have been applied; the
    /// janitor releases them). `TooLate`, `Unavailable`, `Invalid` for too many keys.
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        let (registry, tenure, keys) = (registry.clone(), tenure.clone(), keys.to_vec());
        let request = ClaimKeys {
            registry,
            tenure,
            keys,
            mode,
        };
        send(self, Some(group), request, call).await
    }

    /// Releases a key by compare-and-delete on the exact tenure. Releasing a free key succeeds. O(1).
    ///
    /// # Errors
    /// `NotOwner` if another tenure owns the key, `Ended` if the tenure is not alive, `TooLate`, `Unavailable`.
    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        let (registry, key, tenure) = (registry.clone(), key.clone(), tenure.clone());
        send(self, Some(group), ReleaseClaim { registry, key, tenure }, call).await
    }

    /// Reads a claim and whether its owner is alive now. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        let (registry, key) = (registry.clone(), key.clone());
        send(self, Some(group), ClaimOf { registry, key }, Call::default()).await
    }

    /// Lists the claims of one owner (its current tenure and ended ones that are not released yet), or all. A claim
    /// that is present throughout appears at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let (registry, owner, page) = (registry.clone(), owner.cloned(), page.clone());
        send(self, Some(group), Claims { registry, owner, page }, Call::default()).await
    }
}

impl<S: Backend> RegistryStore for S {}
