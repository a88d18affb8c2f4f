//! Sweeping over HTTP, done by the daemon.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::store::Call;
use tenure_core::sweep::{GroupStatus, Pass, Settle, SettleReport, Status, SweepReport};

use super::HttpStore;
use crate::wire::{self, GroupState, SettleRequest, SweepAnswer};

#[async_trait]
impl Serve<Status> for HttpStore {
    async fn serve(&self, group: &Group, _: Status, _: Call) -> Result<GroupStatus> {
        let request = self.read(&["v1", "groups", group.as_str()]);
        Ok(self.send(request).await?.json::<GroupState>()?.status)
    }
}

#[async_trait]
impl Serve<Pass> for HttpStore {
    async fn serve(&self, group: &Group, ask: Pass, call: Call) -> Result<SweepReport> {
        let Pass { request, pass } = ask;
        // A single pass, as in every store; callers that want more repeat it.
        let body = wire::SweepRequest {
            dry_run: request.dry_run,
            force: request.force,
            reconcile: request.reconcile,
            pass: Some(pass),
            wait_ms: Some(0),
        };
        let request = self
            .mutate(Method::POST, &["v1", "groups", group.as_str(), "sweep"], call)
            .json(&body)
            .patience(self.inner.settings.sweep_timeout);
        Ok(self.send(request).await?.json::<SweepAnswer>()?.report)
    }
}

#[async_trait]
impl Serve<Settle> for HttpStore {
    async fn serve(&self, group: &Option<Group>, ask: Settle, call: Call) -> Result<SettleReport> {
        let cause = ask.cause;
        let path: &[&str] = match group {
            Some(group) => &["v1", "groups", group.as_str(), "settle"],
            None => &["v1", "settle"],
        };
        let request = self.mutate(Method::POST, path, call).json(&SettleRequest { cause });
        self.send(request).await?.json()
    }
}
