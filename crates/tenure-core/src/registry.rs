//! Registries: which member owns which key.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Group, Key, MemberId, RegistryName, TenureId};
use crate::membership::Revision;
use crate::store::{Backend, Call, Page, PageRequest};

/// The most keys in one call.
pub const MAX_KEYS: usize = 10_000;

/// Whether a claim takes a key from a living owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClaimMode {
    /// The device is with me now: takes the key from whoever owns it.
    #[default]
    Take,
    /// Succeeds only where the key is free, owned by the dead, or by an earlier tenure of the same member.
    IfAbsent,
}

/// What a claim came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The key was free.
    New,
    /// The same tenure owned it already.
    Kept,
    /// It was taken over from this tenure.
    Moved {
        /// The owner before.
        from: TenureId,
    },
    /// `IfAbsent`, and this living tenure owns it. Nothing changed.
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

/// The answers to a request for keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// One each, in the order asked.
    pub outcomes: Vec<ClaimOutcome>,
    /// What the tenure holds now goes by this number.
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what the client was told last: the store lost the end
    /// of its data.
    pub before: Revision,
}

/// Who owns a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claim {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// The member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Whether that tenure is alive now. Never waits for a janitor.
    pub alive: bool,
}

/// Refuses too many keys.
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
    /// Where.
    pub registry: RegistryName,
    /// Under which tenure.
    pub tenure: TenureId,
    /// Each is answered by itself.
    pub keys: Vec<Key>,
    /// Whether to take a key from a living owner.
    pub mode: ClaimMode,
}

impl Limits for ClaimKeys {
    fn check(&self, _: Duration) -> Result<()> {
        check_keys(&self.keys)
    }
    fn items(&self) -> usize {
        self.keys.len()
    }
    fn answer_to_nothing(&self) -> Option<Self::Reply> {
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
    /// Where.
    pub registry: RegistryName,
    /// Which.
    pub key: Key,
    /// Whose.
    pub tenure: TenureId,
}

/// [`RegistryStore::claim_of`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOf {
    /// Where.
    pub registry: RegistryName,
    /// Which.
    pub key: Key,
}

/// [`RegistryStore::claims`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// Where.
    pub registry: RegistryName,
    /// Of one owner alone.
    pub owner: Option<MemberId>,
    /// Which page.
    pub page: PageRequest,
}

/// Who owns what.
#[async_trait]
pub trait RegistryStore: Backend {
    /// Claims keys under a living tenure, each answered by itself, in the order asked. At most [`MAX_KEYS`]; applied in
    /// atomic parts of about 200. O(keys).
    ///
    /// # Errors
    /// `Ended` when the tenure is not alive: nothing changed in that part (parts before it may have been applied, and
    /// belong to the janitor now). `TooLate`, `Unavailable`, `Invalid` for too many keys.
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
        ask(self, Some(group), request, call).await
    }

    /// Gives a key up. Compare-and-delete on the exact tenure. Releasing what nobody owns is fine. O(1).
    ///
    /// # Errors
    /// `NotOwner` when another tenure owns it, `Ended` when the tenure is not alive, `TooLate`, `Unavailable`.
    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        let (registry, key, tenure) = (registry.clone(), key.clone(), tenure.clone());
        ask(self, Some(group), ReleaseClaim { registry, key, tenure }, call).await
    }

    /// Looks a key up, together with whether its owner is alive now. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        let (registry, key) = (registry.clone(), key.clone());
        ask(self, Some(group), ClaimOf { registry, key }, Call::default()).await
    }

    /// Lists claims, of one owner (its current tenure and ended ones not yet released) or all. A claim present
    /// throughout is listed at least once. O(page).
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
        ask(self, Some(group), Claims { registry, owner, page }, Call::default()).await
    }
}

impl<S: Backend> RegistryStore for S {}
