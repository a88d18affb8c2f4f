//! The daemon as a whole.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::store::{Finding, Health, Severity, Store};
use tenure_core::time::StoreTime;

use super::HttpStore;
use crate::wire::{Findings, GroupsPage, Now};

#[async_trait]
impl Store for HttpStore {
    fn place(&self) -> String {
        self.inner.base.as_str().trim_end_matches('/').to_owned()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn now(&self) -> Result<StoreTime> {
        Ok(self.send(self.read(&["v1", "now"])).await?.json::<Now>()?.now)
    }

    async fn groups(&self) -> Result<Vec<Group>> {
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
