//! The daemon as a whole.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::{Ask, Op, Reply, Serve, serve_elsewhere};
use tenure_core::error::Result;
use tenure_core::event::EventId;
use tenure_core::id::Group;
use tenure_core::store::{
    Backend, Call, FindGroups, Finding, Health, ListGroups, NewestEvents, Now, Probe, Probed, Severity,
};
use tenure_core::time::StoreTime;

use super::HttpStore;
use super::session::part_of;
use crate::wire::{self, Findings, GroupsPage};

#[async_trait]
impl Backend for HttpStore {
    async fn call(&self, ask: Ask) -> Result<Reply> {
        serve_elsewhere(self, ask).await
    }

    /// The daemon knows the limit.
    fn max_ttl(&self) -> Duration {
        Duration::MAX
    }

    /// The daemon cuts; only what would be too much to send is cut here.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Attach(ask) => part_of(&ask.attaches),
            _ => usize::MAX,
        }
    }

    fn is_elsewhere(&self) -> bool {
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

/// The daemon looks after its store itself; that it answers is what is to be known here.
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
impl Serve<NewestEvents> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: NewestEvents, _: Call) -> Result<Vec<(Group, EventId)>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Serve<FindGroups> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: FindGroups, _: Call) -> Result<bool> {
        Ok(false)
    }
}
