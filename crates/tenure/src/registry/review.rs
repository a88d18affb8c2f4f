//! Whether what a member remembers to own is still its own.
//!
//! A claim takes a key without notice to its former owner. After a loss of data that member must not claim the key again: the
//! device has left it. So a member looks now and then, and forgets the keys of others.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::Result;
use tenure_core::id::{Key, RegistryName, TenureId};
use tenure_core::store::{MAX_PAGE, PageRequest};

use super::Remembered;
use crate::membership::Shared;

/// How often it looks. A key that is taken less than this before a loss of data may return to its owner of before.
const EVERY: Duration = Duration::from_secs(60);
/// The most keys that one look asks for one by one.
const MOST: usize = 1_000;

/// When to look next.
pub(super) fn next(shared: &Shared) -> Mono {
    shared.now() + jitter(&*shared.context.clock, EVERY, 25)
}

/// Looks at all registries. What cannot be read is looked at the next time.
pub(super) async fn review_all(shared: &Shared) {
    let Ok(tenure) = shared.acting_tenure() else { return };
    for (name, remembered) in shared.all_remembered() {
        if let Err(error) = review(shared, &name, &remembered, &tenure).await {
            let error = error.chain();
            tracing::debug!(group = %shared.group, registry = %name, error, "the claims of this member cannot be looked at");
        }
    }
}

async fn review(shared: &Shared, name: &RegistryName, remembered: &Remembered, tenure: &TenureId) -> Result<()> {
    let mut missing = remembered.held_under(tenure);
    if missing.is_empty() {
        return Ok(());
    }
    take_out_owned(shared, name, tenure, &mut missing).await?;
    let mut taken = 0u64;
    for key in missing.into_iter().take(MOST) {
        // Claims and releases of the user wait until then, so that the answer is about what is remembered.
        let _turn = remembered.turn().write().await;
        let claim = shared.context.store.claim_of(&shared.group, name, &key);
        let claim = shared.context.read(claim).await?;
        // A key without an owner may have been lost with the end of the store's data: a beat shows that.
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

/// Takes the keys out that the store lists as owned under the tenure.
async fn take_out_owned(
    shared: &Shared,
    name: &RegistryName,
    tenure: &TenureId,
    keys: &mut BTreeSet<Key>,
) -> Result<()> {
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
