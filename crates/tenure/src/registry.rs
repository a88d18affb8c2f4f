//! A registry as a member sees it: the keys it owns, and whose the others are.
//!
//! What is claimed here is remembered. When the tenure ends by `lapsed` or `unknown` and the membership has joined again,
//! everything remembered is claimed again under the new tenure, but only where the key is free, owned by the dead, or
//! still owned by an earlier tenure of this very member. What another member owns by then is lost, and reported. Once a
//! minute a member looks whether others have taken what it remembers, so that it does not claim that again.

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
pub(crate) use remembered::{Remembered, keep_asserted};

/// After this long an act counts as unanswered. Longer than a beat's: the caller waits for it, nobody's life does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// One registry of one membership. Cheap to clone.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &RegistryName {
        &self.name
    }

    /// Claims a key: the device is with this member now, whoever had it before.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be joining again), `Invalid`, `TooLate`, `Unavailable`. After
    /// an unknown outcome the owner is read back first, so an error means that the key is not known to be ours.
    pub async fn claim(&self, key: &str) -> Result<ClaimOutcome> {
        self.claim_one(Key::new(key)?, ClaimMode::Take).await
    }

    /// Claims a key unless somebody alive owns it (`Held` then says who).
    ///
    /// # Errors
    /// As [`Registry::claim`].
    pub async fn claim_if_absent(&self, key: &str) -> Result<ClaimOutcome> {
        self.claim_one(Key::new(key)?, ClaimMode::IfAbsent).await
    }

    async fn claim_one(&self, key: Key, mode: ClaimMode) -> Result<ClaimOutcome> {
        let tenure = self.shared.acting_tenure()?;
        let keys = [key];
        match self.claim_keys(&tenure, &keys, mode).await {
            Ok(outcomes) => outcomes.into_iter().next().ok_or_else(short_answer),
            Err(error) if error.outcome() == Outcome::Unknown => {
                // A lost reply is no failure: what counts is who owns the key now.
                let [key] = keys;
                match self.look_up_key(&key).await {
                    Ok(Some(claim)) if claim.tenure == tenure => {
                        // Its number was not heard, so no beat would show that the store has lost it again: claim it once
                        // more in the background.
                        self.remembered.keep([key], &tenure, true);
                        self.shared.reassert();
                        Ok(ClaimOutcome::Kept)
                    }
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Claims many keys, each answered by itself, in the order given. One call of the store per 10,000.
    ///
    /// # Errors
    /// As [`Registry::claim`], without the reading back. `Unavailable`, outcome unknown, when parts before the failed one
    /// were claimed: claiming again what is owned already answers `Kept`.
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
            // The store lost the end of its data meanwhile, or these keys are held under the tenure before.
            shared.reassert();
        }
        Ok(claimed.outcomes)
    }

    /// Gives a key up, and forgets it first: whatever becomes of the call, it is not claimed again.
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

    /// Whose a key is, and whether that owner is alive now. `None` when nobody's.
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

    /// Lists the claims of a member, or all, page by page.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    pub async fn claims(&self, owner: Option<&MemberId>, page: &PageRequest) -> Result<Page<Claim>> {
        let shared = &self.shared;
        let call = shared.context.store.claims(&shared.group, &self.name, owner, page);
        shared.context.read(call).await
    }

    /// How many keys are remembered as ours.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.remembered.len()
    }

    /// Waits until keys were found to belong to others, when they were claimed again or looked at (once a minute), and takes
    /// them all. Nothing is skipped: what is not taken waits here, each key once.
    pub async fn lost_claims(&self) -> Vec<LostClaim> {
        self.remembered.take_lost().await
    }
}
