//! Periodic check of remembered claims for new owners.
//!
//! A claim takes a key without notice to its former owner. After a data loss, the former owner must not claim the key
//! again, because the device has moved. So a member checks its keys periodically and forgets those of other owners.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::Result;
use tenure_core::id::{Key, RegistryName, TenureId};
use tenure_core::store::{MAX_PAGE, PageRequest};

use super::Remembered;
use crate::membership::Shared;

/// The check interval. A key taken shorter than this before a data loss may return to its previous owner.
const EVERY: Duration = Duration::from_secs(60);
/// The most keys that are looked up one by one per check.
const MOST: usize = 1_000;

/// The time of the next check.
pub(super) fn next(shared: &Shared) -> Mono {
    shared.now() + jitter(&*shared.context.clock, EVERY, 25)
}

/// Checks all registries. A registry that cannot be read is checked the next time.
pub(super) async fn review_all(shared: &Shared) {
    let Ok(tenure) = shared.acting_tenure() else { return };
    for (name, remembered) in shared.all_remembered() {
        if let Err(error) = review(shared, &name, &remembered, &tenure).await {
            let error = error.chain();
            tracing::debug!(group = %shared.group, registry = %name, error, "the claims of this member could not be checked");
        }
    }
}

async fn review(shared: &Shared, name: &RegistryName, remembered: &Remembered, tenure: &TenureId) -> Result<()> {
    let mut missing = remembered.held_under(tenure);
    if missing.is_empty() {
        return Ok(());
    }
    remove_owned(shared, name, tenure, &mut missing).await?;
    let mut taken = 0u64;
    for key in missing.into_iter().take(MOST) {
        // The user's claims and releases wait meanwhile, so that the answer matches the remembered keys.
        let _turn = remembered.turn().write().await;
        let claim = shared.context.store.claim_of(&shared.group, name, &key);
        let claim = shared.context.read(claim).await?;
        // A key without an owner may be among lost writes; a beat shows that.
        let other = claim.map(|claim| claim.tenure).filter(|owner| owner != tenure);
        if let Some(other) = other {
            taken += u64::from(remembered.lose(tenure, &key, other));
        }
    }
    if taken > 0 {
        tracing::info!(group = %shared.group, registry = %name, %tenure, taken, "other members have claimed keys of this one");
    }
    Ok(())
}

/// Removes the keys that the store lists under the tenure.
async fn remove_owned(shared: &Shared, name: &RegistryName, tenure: &TenureId, keys: &mut BTreeSet<Key>) -> Result<()> {
    let mut page = PageRequest {
        after: None,
        limit: MAX_PAGE,
    };
    loop {
        let store = &shared.context.store;
        let claims = store.claims(&shared.group, name, Some(shared.member()), &page);
        let claims = shared.context.read(claims).await?;
        for claim in claims.items.iter().filter(|claim| claim.tenure == *tenure) {
            keys.remove(&claim.key);
        }
        page.after = claims.next;
        if page.after.is_none() {
            return Ok(());
        }
    }
}
