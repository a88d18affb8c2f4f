//! Leases over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token, check_leases};
use tenure_core::store::{Call, Page, PageRequest};

use super::{HttpStore, check_page};
use crate::wire::{
    self, AcquireLeasesAnswer, AcquireLeasesRequest, LeaseToRelease, LeasesPage, ReleaseLeasesAnswer,
    ReleaseLeasesRequest,
};

#[async_trait]
impl LeaseStore for HttpStore {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        check_leases(leases.len())?;
        let body = AcquireLeasesRequest {
            tenure: tenure.clone(),
            leases: leases.to_vec(),
        };
        let path = ["v1", "groups", group.as_str(), "leases-acquire"];
        let request = self.mutate(Method::POST, &path, call).json(&body);
        let answer: AcquireLeasesAnswer = self.send(request).await?.json()?;
        answer.acquired(leases).ok_or_else(not_what_was_asked)
    }

    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        check_leases(leases.len())?;
        let items = leases.iter().cloned();
        let body = ReleaseLeasesRequest {
            tenure: tenure.clone(),
            leases: items.map(|(lease, token)| LeaseToRelease { lease, token }).collect(),
            to: to.cloned(),
        };
        let path = ["v1", "groups", group.as_str(), "leases-release"];
        let request = self.mutate(Method::POST, &path, call).json(&body);
        let answer: ReleaseLeasesAnswer = self.send(request).await?.json()?;
        answer.given_up(leases).ok_or_else(not_what_was_asked)
    }

    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        let path = ["v1", "groups", group.as_str(), "leases", lease.as_str()];
        match self.send(self.read(&path)).await {
            Ok(answer) => Ok(Some(answer.json::<wire::Lease>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        let of = holder.map(|holder| ("holder", holder.as_str()));
        Ok(self.list_leases(group, of, page).await?.page)
    }

    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        self.list_leases(group, Some(("tenure", &tenure.to_string())), page)
            .await
    }
}

impl HttpStore {
    async fn list_leases(&self, group: &Group, of: Option<(&str, &str)>, page: &PageRequest) -> Result<HeldLeases> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(of);
        let request = self.read(&["v1", "groups", group.as_str(), "leases"]).query(&query);
        Ok(self.send(request).await?.json::<LeasesPage>()?.into())
    }
}

/// The request was answered, and may well have been done; what it came to has to be read back.
fn not_what_was_asked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the daemon's answers to a batch of leases are not those that were asked for",
    )
}
