//! Targets over HTTP.

use async_trait::async_trait;
use reqwest::{Method, StatusCode};
use tenure_core::call::Serve;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::store::{Call, Page};
use tenure_core::target::{PutTarget, RemoveTarget, Target, TargetOf, Targets};

use super::{HttpStore, check_page};
use crate::wire::{self, REMOVED, TargetRequest, TargetsPage};

/// A store call needs neither the preferred node nor the lease of a target.
const PLAIN: (&str, &str) = ("plain", "true");

#[async_trait]
impl Serve<PutTarget> for HttpStore {
    async fn serve(&self, group: &Group, ask: PutTarget, call: Call) -> Result<bool> {
        let PutTarget { target, spec } = ask;
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        let request = self.mutate(Method::PUT, &path, call).json(&TargetRequest::from(spec));
        Ok(self.send(request).await?.status == StatusCode::CREATED)
    }
}

#[async_trait]
impl Serve<RemoveTarget> for HttpStore {
    async fn serve(&self, group: &Group, ask: RemoveTarget, call: Call) -> Result<bool> {
        let target = ask.target;
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        let answer = self.send(self.mutate(Method::DELETE, &path, call)).await?;
        Ok(answer.headers.get(REMOVED).is_some_and(|removed| removed == "true"))
    }
}

#[async_trait]
impl Serve<TargetOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: TargetOf, _: Call) -> Result<Option<Target>> {
        let target = ask.target;
        let path = ["v1", "groups", group.as_str(), "targets", target.as_str()];
        match self.send(self.read(&path).query(&[PLAIN])).await {
            Ok(answer) => Ok(Some(answer.json::<wire::Target>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Serve<Targets> for HttpStore {
    async fn serve(&self, group: &Group, ask: Targets, _: Call) -> Result<Page<Target>> {
        let page = &ask.page;
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
