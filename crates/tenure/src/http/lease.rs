//! Leases over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::lease::{
    Acquire, Acquired, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, ReleaseLeases, ReleasedLeases,
};
use tenure_core::store::{Call, Page, PageRequest};

use super::{HttpStore, check_page};
use crate::wire::{AcquireLeasesAnswer, LeasesPage, ReleaseLeasesAnswer};

#[async_trait]
impl Serve<Acquire> for HttpStore {
    async fn serve(&self, group: &Group, ask: Acquire, call: Call) -> Result<Acquired> {
        let path = ["v1", "groups", group.as_str(), "leases-acquire"];
        let request = self.mutate(Method::POST, &path, call).json(&ask);
        let answer: AcquireLeasesAnswer = self.send(request).await?.json()?;
        answer.acquired(&ask.leases).ok_or_else(not_what_was_asked)
    }
}

#[async_trait]
impl Serve<ReleaseLeases> for HttpStore {
    async fn serve(&self, group: &Group, ask: ReleaseLeases, call: Call) -> Result<ReleasedLeases> {
        let path = ["v1", "groups", group.as_str(), "leases-release"];
        let request = self.mutate(Method::POST, &path, call).json(&ask);
        let answer: ReleaseLeasesAnswer = self.send(request).await?.json()?;
        answer.given_up(&ask.leases).ok_or_else(not_what_was_asked)
    }
}

#[async_trait]
impl Serve<LeaseOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: LeaseOf, _: Call) -> Result<Option<Lease>> {
        let lease = ask.lease;
        let path = ["v1", "groups", group.as_str(), "leases", lease.as_str()];
        match self.send(self.read(&path)).await {
            Ok(answer) => Ok(Some(answer.json()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Serve<Leases> for HttpStore {
    async fn serve(&self, group: &Group, ask: Leases, _: Call) -> Result<Page<Lease>> {
        let Leases { holder, page } = ask;
        let of = holder.as_ref().map(|holder| ("holder", holder.as_str()));
        Ok(self.list_leases(group, of, &page).await?.page)
    }
}

#[async_trait]
impl Serve<LeasesOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: LeasesOf, _: Call) -> Result<HeldLeases> {
        let LeasesOf { tenure, page } = ask;
        self.list_leases(group, Some(("tenure", &tenure.to_string())), &page)
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

/// The request was answered and may have been applied; its outcome must be read back.
fn not_what_was_asked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the daemon's answers do not match the requested leases",
    )
}
