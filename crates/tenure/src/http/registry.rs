//! Claims over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::registry::{Claim, ClaimKeys, ClaimMode, ClaimOf, Claimed, Claims, ReleaseClaim};
use tenure_core::store::{Call, Page};

use super::{HttpStore, check_page};
use crate::wire::{ClaimResult, ClaimsAnswer, ClaimsPage, ClaimsRequest};

#[async_trait]
impl Serve<ClaimKeys> for HttpStore {
    async fn serve(&self, group: &Group, ask: ClaimKeys, call: Call) -> Result<Claimed> {
        let (registry, keys) = (ask.registry, ask.keys);
        let body = ClaimsRequest {
            tenure: ask.tenure,
            keys: keys.clone(),
            if_absent: ask.mode == ClaimMode::IfAbsent,
        };
        let path = [
            "v1",
            "groups",
            group.as_str(),
            "registries",
            registry.as_str(),
            "claims",
        ];
        let answer: ClaimsAnswer = self
            .send(self.mutate(Method::POST, &path, call).json(&body))
            .await?
            .json()?;
        let in_order = answer.results.len() == keys.len()
            && answer.results.iter().zip(&keys).all(|(result, key)| result.key == *key);
        let (revision, before) = (answer.revision, answer.revision_before);
        let outcomes: Option<Vec<_>> = answer.results.into_iter().map(ClaimResult::outcome).collect();
        let outcomes = outcomes.filter(|_| in_order);
        let claimed = outcomes.map(|outcomes| Claimed {
            outcomes,
            revision,
            before,
        });
        claimed.ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "the daemon's answers do not match the requested claims",
            )
        })
    }
}

#[async_trait]
impl Serve<ReleaseClaim> for HttpStore {
    async fn serve(&self, group: &Group, ask: ReleaseClaim, call: Call) -> Result<()> {
        let ReleaseClaim { registry, key, tenure } = ask;
        let path = [
            "v1",
            "groups",
            group.as_str(),
            "registries",
            registry.as_str(),
            "claims",
            key.as_str(),
        ];
        let request = self
            .mutate(Method::DELETE, &path, call)
            .query(&[("tenure", &tenure.to_string())]);
        self.send(request).await.map(drop)
    }
}

#[async_trait]
impl Serve<ClaimOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: ClaimOf, _: Call) -> Result<Option<Claim>> {
        let ClaimOf { registry, key } = ask;
        let path = [
            "v1",
            "groups",
            group.as_str(),
            "registries",
            registry.as_str(),
            "claims",
            key.as_str(),
        ];
        match self.send(self.read(&path)).await {
            Ok(answer) => Ok(Some(answer.json()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Serve<Claims> for HttpStore {
    async fn serve(&self, group: &Group, ask: Claims, _: Call) -> Result<Page<Claim>> {
        let Claims { registry, owner, page } = ask;
        let limit = check_page(&page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(owner.as_ref().map(|owner| ("owner", owner.as_str())));
        let path = [
            "v1",
            "groups",
            group.as_str(),
            "registries",
            registry.as_str(),
            "claims",
        ];
        let answer: ClaimsPage = self.send(self.read(&path).query(&query)).await?.json()?;
        Ok(Page {
            items: answer.claims,
            next: answer.next,
        })
    }
}
