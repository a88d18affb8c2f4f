//! One request, as the call of the store that it is.

use tenure::{Error, ErrorKind, Group, Result, Store};

use crate::wire::{Op, Reply};

/// Calls the store.
///
/// # Errors
/// Those of the call.
pub async fn apply(store: &dyn Store, group: &Group, op: &Op) -> Result<Reply> {
    match op {
        Op::Join { join, call } => store.join(group, join, *call).await.map(Reply::Joined),
        Op::Beat { beats } => store.beat(group, beats).await.map(Reply::Beaten),
        Op::End { tenure, by, call } => store.end(group, tenure, *by, *call).await.map(Reply::Reason),
        Op::Member { member } => store.member(group, member).await.map(Reply::Member),
        Op::Members { page } => store.members(group, page).await.map(Reply::Members),
        Op::Claim {
            registry,
            tenure,
            keys,
            mode,
            call,
        } => {
            let claimed = store.claim(group, registry, tenure, keys, *mode, *call).await;
            claimed.map(Reply::Claimed)
        }
        Op::ReleaseClaim {
            registry,
            key,
            tenure,
            call,
        } => {
            let released = store.release_claim(group, registry, key, tenure, *call).await;
            released.map(|()| Reply::Done)
        }
        Op::ClaimOf { registry, key } => store.claim_of(group, registry, key).await.map(Reply::Claim),
        Op::Claims { registry, owner, page } => {
            let claims = store.claims(group, registry, owner.as_ref(), page).await;
            claims.map(Reply::Claims)
        }
        Op::Events { query } => store.events(group, query).await.map(Reply::Events),
        Op::Now => store.now().await.map(Reply::Now),
        Op::Groups => store.groups().await.map(Reply::Groups),
        Op::Wait { .. } => Ok(Reply::Done),
        Op::Tick | Op::EndLapsed { .. } | Op::Release { .. } | Op::Doomed { .. } | Op::Status => {
            sweep(store, group, op).await
        }
        _ => lease(store, group, op).await,
    }
}

async fn sweep(store: &dyn Store, group: &Group, op: &Op) -> Result<Reply> {
    let gone = || Error::new(ErrorKind::Unsupported, "the store inside is not swept by its users");
    let steps = store.steps().ok_or_else(gone)?;
    match op {
        Op::Tick => steps.tick(group).await.map(Reply::Status),
        Op::EndLapsed { limit, call } => steps.end_lapsed(group, *limit, *call).await.map(Reply::Ended),
        Op::Release { request, call } => steps.release(group, request, *call).await.map(Reply::Released),
        Op::Doomed { limit } => steps.doomed(group, *limit).await.map(Reply::Doomed),
        _ => store.status(group).await.map(Reply::Status),
    }
}

async fn lease(store: &dyn Store, group: &Group, op: &Op) -> Result<Reply> {
    match op {
        Op::Acquire { tenure, leases, call } => store.acquire(group, tenure, leases, *call).await.map(Reply::Acquired),
        Op::ReleaseLeases {
            tenure,
            leases,
            to,
            call,
        } => {
            let given_up = store.release_leases(group, tenure, leases, to.as_ref(), *call).await;
            given_up.map(Reply::GivenUp)
        }
        Op::LeaseOf { lease } => store.lease_of(group, lease).await.map(Reply::Lease),
        Op::Leases { holder, page } => store.leases(group, holder.as_ref(), page).await.map(Reply::Leases),
        Op::HeldLeases { tenure, page } => store.held_leases(group, tenure, page).await.map(Reply::HeldLeases),
        Op::PutTarget { target, spec, call } => {
            let put = store.put_target(group, target, *spec, *call).await;
            put.map(Reply::Changed)
        }
        Op::RemoveTarget { target, call } => store.remove_target(group, target, *call).await.map(Reply::Changed),
        Op::Target { target } => store.target(group, target).await.map(Reply::Target),
        Op::Targets { page } => store.targets(group, page).await.map(Reply::Targets),
        _ => Err(Error::new(ErrorKind::Internal, "there is no such call")),
    }
}
