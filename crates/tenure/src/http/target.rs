//! Targets over HTTP.

use async_trait::async_trait;
use reqwest::{Method, StatusCode};
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::{Call, Page, PageRequest};
use tenure_core::target::{Target, TargetSpec, TargetStore};

use super::{HttpStore, check_page};
use crate::wire::{self, REMOVED, TargetRequest, TargetsPage};

/// Where a node would rather have a target, and who holds it, a store is not asked for.
const PLAIN: (&str, &str) = ("plain", "true");

#[async_trait]
impl TargetStore for HttpStore {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        let request = self.mutate(Method::PUT, &path, call).json(&TargetRequest::from(spec));
        Ok(self.send(request).await?.status == StatusCode::CREATED)
    }

    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        let answer = self.send(self.mutate(Method::DELETE, &path, call)).await?;
        Ok(answer.headers.get(REMOVED).is_some_and(|removed| removed == "true"))
    }

    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        match self.send(self.read(&path).query(&[PLAIN])).await {
            Ok(answer) => Ok(Some(answer.json::<wire::Target>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str()), PLAIN];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        let request = self.read(&["v1", "groups", group.as_str(), "targets"]).query(&query);
        let answer: TargetsPage = self.send(request).await?.json()?;
        Ok(Page {
            items: answer.targets.into_iter().map(Into::into).collect(),
            next: answer.next,
        })
    }
}
