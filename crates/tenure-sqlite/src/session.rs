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

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::id::{Alias, Group, SessionId, TenureId};
use tenure_core::parts::Parts;
use tenure_core::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore, check_attaches, check_count, check_data,
};
use tenure_core::store::{Call, Page, PageRequest, check_limit};
use tenure_core::sweep::BATCH;

pub(crate) use reaper::Gone;
pub(crate) use reconcile::Place;

use crate::store::SqliteStore;

#[async_trait]
impl SessionStore for SqliteStore {
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        check_attaches(attaches)?;
        let attach = |part: &[Attach]| {
            let (tenure, part) = (tenure.clone(), part.to_vec());
            self.step(group, call, move |step| step.attach(&tenure, &part))
        };
        // Also without a connection: the tenure is looked at.
        let (mut parts, mut done) = (attaches.chunks(BATCH as usize), Parts::default());
        let mut all = done.take(attach(parts.next().unwrap_or_default()).await)?;
        for part in parts {
            let next = done.take(attach(part).await)?;
            all.outcomes.extend(next.outcomes);
            all.revision = next.revision;
        }
        Ok(all)
    }

    async fn detach(
        &self,
        group: &Group,
        tenure: &TenureId,
        detaches: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        check_count(detaches.len(), "detaches")?;
        let detach = |part: &[Detach]| {
            let (tenure, part) = (tenure.clone(), part.to_vec());
            self.step(group, call, move |step| step.detach(&tenure, &part))
        };
        let (mut parts, mut done) = (detaches.chunks(BATCH as usize), Parts::default());
        let mut all = done.take(detach(parts.next().unwrap_or_default()).await)?;
        for part in parts {
            all.extend(done.take(detach(part).await)?);
        }
        Ok(all)
    }

    async fn patch_session(
        &self,
        group: &Group,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
        call: Call,
    ) -> Result<PatchOutcome> {
        check_data(data)?;
        let (session, tenure, data) = (session.clone(), tenure.cloned(), data.clone());
        self.step(group, call, move |step| {
            step.patch_session(&session, tenure.as_ref(), &data)
        })
        .await
    }

    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        let session = session.clone();
        self.step(group, call, move |step| step.delete_session(&session)).await
    }

    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        self.look_up_session(group, session.clone()).await
    }

    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        self.look_up_alias(group, alias.clone()).await
    }

    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        check_limit(page.limit)?;
        self.list_sessions(group, state, page).await
    }

    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        let limit = check_limit(limit)?;
        self.list_orphans(group, overdue, limit).await
    }

    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        self.count_sessions(group).await
    }
}

#[cfg(test)]
mod tests;
