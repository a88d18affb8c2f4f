//! Leases: which tenure holds which one, and with which fencing token.
//!
//! A lease is a row that names its tenure; its liveness comes from memory, as that of a claim. `step` holds the steps,
//! `listing` the reads.

mod listing;
mod step;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::lease::{Acquire, Acquired, GivenUp, ReleaseLeases};
use tenure_core::store::Call;
use tenure_core::{Group, Result};

use crate::store::SqliteStore;

#[async_trait]
impl Serve<Acquire> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Acquire, call: Call) -> Result<Acquired> {
        self.step(group, call, move |step| step.acquire(&ask.tenure, &ask.leases))
            .await
    }
}

#[async_trait]
impl Serve<ReleaseLeases> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ReleaseLeases, call: Call) -> Result<GivenUp> {
        self.step(group, call, move |step| {
            step.release_leases(&ask.tenure, &ask.leases, ask.to.as_ref())
        })
        .await
    }
}

#[cfg(test)]
mod tests;
