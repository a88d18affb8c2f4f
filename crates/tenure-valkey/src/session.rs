//! Sessions: not kept by this store yet.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Alias, Group, SessionId, TenureId};
use tenure_core::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore,
};
use tenure_core::store::{Call, Page, PageRequest};

use crate::store::ValkeyStore;

fn not_yet() -> Error {
    Error::new(ErrorKind::Unsupported, "this store keeps no sessions yet")
}

#[async_trait]
impl SessionStore for ValkeyStore {
    async fn attach(&self, _: &Group, _: &TenureId, _: &[Attach], _: Call) -> Result<Attached> {
        Err(not_yet())
    }
    async fn detach(&self, _: &Group, _: &TenureId, _: &[Detach], _: Call) -> Result<Vec<DetachOutcome>> {
        Err(not_yet())
    }
    async fn patch_session(
        &self,
        _: &Group,
        _: &SessionId,
        _: Option<&TenureId>,
        _: &Data,
        _: Call,
    ) -> Result<PatchOutcome> {
        Err(not_yet())
    }
    async fn delete_session(&self, _: &Group, _: &SessionId, _: Call) -> Result<DeleteOutcome> {
        Err(not_yet())
    }
    async fn session(&self, _: &Group, _: &SessionId) -> Result<Option<Session>> {
        Ok(None)
    }
    async fn session_by_alias(&self, _: &Group, _: &Alias) -> Result<Option<Session>> {
        Ok(None)
    }
    async fn sessions(&self, _: &Group, _: Option<SessionState>, _: &PageRequest) -> Result<Page<Session>> {
        Ok(Page::default())
    }
    async fn orphans(&self, _: &Group, _: Duration, _: u32) -> Result<Orphans> {
        Ok(Orphans::default())
    }
    async fn session_stats(&self, _: &Group) -> Result<SessionStats> {
        Ok(SessionStats::default())
    }
}
