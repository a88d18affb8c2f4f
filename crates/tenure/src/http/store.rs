//! The daemon as a store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::{Op, Reply, Serve, StoreRequest, serve_remote};
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::store::{Backend, Call, FindGroups, Finding, Health, ListGroups, Now, Probe, Probed, Severity};
use tenure_core::time::StoreTime;

use super::HttpStore;
use super::session::part_of;
use crate::wire::{self, Findings, GroupsPage};

#[async_trait]
impl Backend for HttpStore {
    async fn call(&self, ask: StoreRequest) -> Result<Reply> {
        serve_remote(self, ask).await
    }

    /// The daemon enforces its limit.
    fn max_ttl(&self) -> Duration {
        Duration::MAX
    }

    /// The daemon splits calls; only what exceeds its body limit is split here.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Attach(ask) => part_of(&ask.attaches),
            _ => usize::MAX,
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        self.inner.base.as_str().trim_end_matches('/').to_owned()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    fn answers_within(&self) -> Option<Duration> {
        Some(self.inner.settings.request_timeout)
    }

    async fn examine(&self) -> Vec<Finding> {
        let findings = match self.send(self.read(&["v1", "doctor"])).await {
            Ok(answer) => answer.json::<Findings>(),
            Err(error) => Err(error),
        };
        match findings {
            Ok(found) => {
                let daemon = Finding::new("daemon", Severity::Ok, format!("{} answers", self.place()));
                std::iter::once(daemon).chain(found.findings).collect()
            }
            Err(error) => vec![Finding::new("daemon", Severity::Error, error.chain())],
        }
    }

    async fn close(&self) {
        self.inner.closed.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Serve<Now> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: Now, _: Call) -> Result<StoreTime> {
        Ok(self.send(self.read(&["v1", "now"])).await?.json::<wire::Now>()?.now)
    }
}

/// The daemon monitors its store; here an answer is sufficient.
#[async_trait]
impl Serve<Probe> for HttpStore {
    async fn serve(&self, about: &Option<Group>, _: Probe, call: Call) -> Result<Probed> {
        let as_of = self.serve(about, Now, call).await?;
        Ok(Probed {
            as_of,
            away: Vec::new(),
        })
    }
}

#[async_trait]
impl Serve<ListGroups> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: ListGroups, _: Call) -> Result<Vec<Group>> {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("limit", "1000")];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let page: GroupsPage = self.send(self.read(&["v1", "groups"]).query(&query)).await?.json()?;
            all.extend(page.groups);
            match page.next {
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                _ => return Ok(all),
            }
        }
    }
}

#[async_trait]
impl Serve<FindGroups> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: FindGroups, _: Call) -> Result<bool> {
        Ok(false)
    }
}
