//! A registry as a member sees it: its own keys, and the owners of others.
//!
//! Claims are remembered. When the membership rejoins after `lapsed` or `unknown`, they are claimed again under the new
//! tenure, but only where the key is free, owned by a dead member, or owned by an earlier tenure of this member. Keys
//! that another member owns by then are lost, and reported. Once a minute the member checks whether others have claimed
//! its keys, so that it does not claim those again.

mod remembered;
mod review;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::Parts;
use tenure_core::error::{Outcome, Result};
use tenure_core::id::{Key, MemberId, RegistryName, TenureId};
use tenure_core::registry::{Claim, ClaimMode, ClaimOutcome, MAX_KEYS};
use tenure_core::store::{Page, PageRequest};

use crate::membership::Shared;

pub use remembered::LostClaim;
use remembered::short_answer;
pub(crate) use remembered::{Remembered, reassert_claims};

/// Time-out of a user's call. Longer than a beat's, because no tenure depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A registry of a membership. Clones share state.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    remembered: Arc<Remembered>,
    name: RegistryName,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({}/{})", self.shared.group, self.name)
    }
}

impl Registry {
    pub(crate) fn open(shared: &Arc<Shared>, name: RegistryName) -> Self {
        let remembered = shared.remembered(&name);
        Self {
            shared: Arc::clone(shared),
            remembered,
            name,
        }
    }

    /// The name of the registry.
    #[must_use]
    pub fn name(&self) -> &RegistryName {
        &self.name
    }

    /// Claims a key for this member, replacing any previous owner.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be rejoining), `Invalid`, `TooLate`, `Unavailable`. After an
    /// unknown outcome the owner is read back, and a free key is claimed once more; an error then means that ownership is
    /// not confirmed.
    pub async fn claim(&self, key: &str) -> Result<ClaimOutcome> {
        self.claim_one(Key::new(key)?, ClaimMode::Take).await
    }

    /// Claims a key unless a living member owns it (then `Held` names it).
    ///
    /// # Errors
    /// As [`Registry::claim`].
    pub async fn claim_if_absent(&self, key: &str) -> Result<ClaimOutcome> {
        self.claim_one(Key::new(key)?, ClaimMode::IfAbsent).await
    }

    async fn claim_one(&self, key: Key, mode: ClaimMode) -> Result<ClaimOutcome> {
        let tenure = self.shared.acting_tenure()?;
        let keys = [key];
        let mut is_first = true;
        loop {
            let error = match self.claim_keys(&tenure, &keys, mode).await {
                Ok(outcomes) => return outcomes.into_iter().next().ok_or_else(short_answer),
                Err(error) if error.outcome() == Outcome::Unknown => error,
                Err(error) => return Err(error),
            };
            // A lost reply is not a failure: what counts is the owner now.
            match self.look_up_key(&keys[0]).await {
                Ok(Some(claim)) if claim.tenure == tenure => {
                    // Its revision was not received, so no beat would show a later loss: claim it once more in the
                    // background.
                    self.remembered.keep(keys, &tenure, true);
                    self.shared.reassert();
                    return Ok(ClaimOutcome::Kept);
                }
                // The claim did not arrive. A living owner may have taken the key after it did, and keeps it.
                Ok(claim) if is_first && claim.as_ref().is_none_or(|claim| !claim.alive) => is_first = false,
                _ => return Err(error),
            }
        }
    }

    /// Claims many keys, each independently. Results are in the order given. One store call per 10,000 keys.
    ///
    /// # Errors
    /// As [`Registry::claim`], without reading the owners back. `Unavailable` with an unknown outcome when parts before
    /// the failed one were claimed; a retry returns `Kept` for those.
    pub async fn claim_many<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mode: ClaimMode,
    ) -> Result<Vec<ClaimOutcome>> {
        let keys: Vec<Key> = keys.into_iter().map(Key::new).collect::<Result<_>>()?;
        let (mut outcomes, mut done) = (Vec::with_capacity(keys.len()), Parts::default());
        for part in keys.chunks(MAX_KEYS) {
            let tenure = self.shared.acting_tenure()?;
            outcomes.extend(done.take(self.claim_keys(&tenure, part, mode).await)?);
        }
        Ok(outcomes)
    }

    async fn claim_keys(&self, tenure: &TenureId, keys: &[Key], mode: ClaimMode) -> Result<Vec<ClaimOutcome>> {
        let shared = &self.shared;
        let _turn = self.remembered.turn().read().await;
        let call = shared
            .context
            .store
            .claim(&shared.group, &self.name, tenure, keys, mode, shared.call(PATIENCE));
        let act = shared.act(keys.len(), PATIENCE);
        let claimed = match shared.context.act(call).await {
            Ok(claimed) => claimed,
            Err(error) => {
                shared.heed(&error);
                act.failed(&error, false);
                return Err(error);
            }
        };
        let doubted = shared.heed_answer(act.answered(claimed.before, claimed.revision));
        let ours = keys
            .iter()
            .zip(&claimed.outcomes)
            .filter(|(_, outcome)| !matches!(outcome, ClaimOutcome::Held { .. }));
        self.remembered.keep(ours.map(|(key, _)| key.clone()), tenure, doubted);
        if doubted || shared.tenure() != *tenure {
            // The store lost its latest writes meanwhile, or these keys are held under the previous tenure.
            shared.reassert();
        }
        Ok(claimed.outcomes)
    }

    /// Releases a key. It is forgotten locally first, so it is not claimed again even if the call fails.
    ///
    /// # Errors
    /// `NotOwner` when another tenure owns it, `Ended`, `TooLate`, `Unavailable`.
    pub async fn release(&self, key: &str) -> Result<()> {
        let (shared, key) = (&self.shared, Key::new(key)?);
        let _turn = self.remembered.turn().read().await;
        self.remembered.forget(&key);
        let tenure = shared.acting_tenure()?;
        let call = shared
            .context
            .store
            .release_claim(&shared.group, &self.name, &key, &tenure, shared.call(PATIENCE));
        let done = shared.context.act(call).await;
        done.inspect_err(|error| shared.heed(error))
    }

    /// Looks up the owner of a key and whether it is alive. `None` if the key has no owner.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn look_up(&self, key: &str) -> Result<Option<Claim>> {
        self.look_up_key(&Key::new(key)?).await
    }

    async fn look_up_key(&self, key: &Key) -> Result<Option<Claim>> {
        let shared = &self.shared;
        let call = shared.context.store.claim_of(&shared.group, &self.name, key);
        shared.context.read(call).await
    }

    /// Lists the claims of a member, or all claims, page by page.
    ///
    /// # Errors
    /// `Invalid` for a cursor of another listing, `Unavailable`.
    pub async fn claims(&self, owner: Option<&MemberId>, page: &PageRequest) -> Result<Page<Claim>> {
        let shared = &self.shared;
        let call = shared.context.store.claims(&shared.group, &self.name, owner, page);
        shared.context.read(call).await
    }

    /// Number of keys remembered as ours.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.remembered.len()
    }

    /// Waits until keys were found to belong to other members, and takes all of them. Losses are found when keys are
    /// claimed again and at the check once a minute. Each lost key is kept here once until it is taken.
    pub async fn lost_claims(&self) -> Vec<LostClaim> {
        self.remembered.take_lost().await
    }
}
