//! Sweeping over HTTP: the daemon does it.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::settling::GapCause;
use tenure_core::store::Call;
use tenure_core::sweep::{GroupStatus, SettleReport, Sweep, SweepReport, SweepRequest, SweepSteps};

use super::HttpStore;
use crate::wire::{self, GroupState, SettleAnswer, SettleRequest, SweepAnswer};

#[async_trait]
impl Sweep for HttpStore {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        None
    }

    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        let request = self.read(&["v1", "groups", group.as_str()]);
        Ok(self.send(request).await?.json::<GroupState>()?.into())
    }

    async fn sweep(&self, group: &Group, request: &SweepRequest, pass: &str, call: Call) -> Result<SweepReport> {
        // One pass means one pass, as in every store; whoever wants to wait for more asks again.
        let body = wire::SweepRequest {
            dry_run: request.dry_run,
            force: request.force,
            reconcile: request.reconcile,
            pass: Some(pass.to_owned()),
            wait_ms: Some(0),
        };
        let request = self
            .mutate(Method::POST, &["v1", "groups", group.as_str(), "sweep"], call)
            .json(&body)
            .patience(self.inner.settings.sweep_timeout);
        Ok(self.send(request).await?.json::<SweepAnswer>()?.into())
    }

    async fn settle(&self, group: Option<&Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        let path: &[&str] = match group {
            Some(group) => &["v1", "groups", group.as_str(), "settle"],
            None => &["v1", "settle"],
        };
        let request = self.mutate(Method::POST, path, call).json(&SettleRequest { cause });
        Ok(self.send(request).await?.json::<SettleAnswer>()?.into())
    }
}
