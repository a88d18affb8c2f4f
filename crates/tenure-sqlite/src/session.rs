//! Sessions: what connections belong to, and what stays for a while when the last connection is gone.
//!
//! A session is one row with its data, its alias and its place in the index of the disconnected ones, and each of its
//! connections is a row that names its tenure. So what other stores keep in several places cannot drift apart here, and
//! a connection is among what its tenure holds by an index of the same rows. `record` is a session as its row tells,
//! `attach`, `detach` and `step` hold the steps, `listing` the reads, `reaper` what becomes of connections of the ended and of orphans, and
//! `reconcile` looks for what only a foreign hand can have done to the file.

mod attach;
mod detach;
mod listing;
mod reaper;
mod reconcile;
mod record;
mod step;

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::call::Serve;
use tenure_core::id::Group;
use tenure_core::session::{
    Attached, Attaches, DeleteOutcome, DeleteSession, DetachOutcome, Detaches, PatchOutcome, PatchSession,
};
use tenure_core::store::Call;

pub(crate) use reaper::Gone;
pub(crate) use reconcile::Place;

use crate::store::SqliteStore;

#[async_trait]
impl Serve<Attaches> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Attaches, call: Call) -> Result<Attached> {
        self.step(group, call, move |step| step.attach(&ask.tenure, &ask.attaches))
            .await
    }
}

#[async_trait]
impl Serve<Detaches> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Detaches, call: Call) -> Result<Vec<DetachOutcome>> {
        self.step(group, call, move |step| step.detach(&ask.tenure, &ask.detaches))
            .await
    }
}

#[async_trait]
impl Serve<PatchSession> for SqliteStore {
    async fn serve(&self, group: &Group, ask: PatchSession, call: Call) -> Result<PatchOutcome> {
        self.step(group, call, move |step| {
            step.patch_session(&ask.session, ask.tenure.as_ref(), &ask.data)
        })
        .await
    }
}

#[async_trait]
impl Serve<DeleteSession> for SqliteStore {
    async fn serve(&self, group: &Group, ask: DeleteSession, call: Call) -> Result<DeleteOutcome> {
        self.step(group, call, move |step| step.delete_session(&ask.session))
            .await
    }
}

#[cfg(test)]
mod tests;
