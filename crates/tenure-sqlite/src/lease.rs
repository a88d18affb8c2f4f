//! Leases: which tenure holds which one, and with which fencing token.
//!
//! A lease is a row that names its tenure; its liveness comes from memory, as that of a claim. `step` holds the steps,
//! `listing` the reads.

mod listing;
mod step;

use async_trait::async_trait;
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token, check_leases};
use tenure_core::parts::Parts;
use tenure_core::store::{Call, Page, PageRequest, check_limit};
use tenure_core::sweep::BATCH;
use tenure_core::{Group, LeaseName, MemberId, Result, TenureId};

use crate::store::SqliteStore;

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        check_leases(leases.len())?;
        let acquire = |part: &[LeaseName]| {
            let (tenure, part) = (tenure.clone(), part.to_vec());
            self.step(group, call, move |step| step.acquire(&tenure, &part))
        };
        // Also without a lease: the tenure is looked at.
        let (mut parts, mut done) = (leases.chunks(BATCH as usize), Parts::default());
        let mut all = done.take(acquire(parts.next().unwrap_or_default()).await)?;
        for part in parts {
            let mut next = done.take(acquire(part).await)?;
            all.outcomes.append(&mut next.outcomes);
            all = Acquired {
                outcomes: all.outcomes,
                before: all.before,
                ..next
            };
        }
        Ok(all)
    }

    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        check_leases(leases.len())?;
        let release = |part: &[(LeaseName, Token)]| {
            let (tenure, part, to) = (tenure.clone(), part.to_vec(), to.cloned());
            self.step(group, call, move |step| {
                step.release_leases(&tenure, &part, to.as_ref())
            })
        };
        let (mut parts, mut done) = (leases.chunks(BATCH as usize), Parts::default());
        let mut all = done.take(release(parts.next().unwrap_or_default()).await)?;
        for part in parts {
            let mut next = done.take(release(part).await)?;
            all.outcomes.append(&mut next.outcomes);
            all = GivenUp {
                outcomes: all.outcomes,
                before: all.before,
                ..next
            };
        }
        Ok(all)
    }

    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        self.look_up_lease(group, lease).await
    }

    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        check_limit(page.limit)?;
        match holder {
            None => self.list_leases(group, page).await,
            Some(holder) => self.list_leases_of(group, holder, page).await,
        }
    }

    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        check_limit(page.limit)?;
        self.list_held(group, tenure, page).await
    }
}

#[cfg(test)]
mod tests;
