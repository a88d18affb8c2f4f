//! Claims over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, Key, MemberId, RegistryName, TenureId};
use tenure_core::registry::{Claim, ClaimMode, Claimed, RegistryStore, check_keys};
use tenure_core::store::{Call, Page, PageRequest};

use super::{HttpStore, check_page};
use crate::wire::{self, ClaimResult, ClaimsAnswer, ClaimsPage, ClaimsRequest};

#[async_trait]
impl RegistryStore for HttpStore {
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        check_keys(keys)?;
        let body = ClaimsRequest {
            tenure: tenure.clone(),
            keys: keys.to_vec(),
            if_absent: mode == ClaimMode::IfAbsent,
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
            && answer.results.iter().zip(keys).all(|(result, key)| result.key == *key);
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
                "the daemon's answers to a batch of claims are not those that were asked for",
            )
        })
    }

    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
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

    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
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
            Ok(answer) => Ok(Some(answer.json::<wire::Claim>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(owner.map(|owner| ("owner", owner.as_str())));
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
            items: answer.claims.into_iter().map(Into::into).collect(),
            next: answer.next,
        })
    }
}
