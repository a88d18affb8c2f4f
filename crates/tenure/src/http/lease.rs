//! Leases over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName};
use tenure_core::lease::{
    Acquire, Acquired, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, Queue, ReleaseLeases, ReleasedLeases, RevokeLease,
    RevokeOf, Revoked, WaitForGrants, WaitingTurn, Withdraw, Withdrawn,
};
use tenure_core::membership::Revision;
use tenure_core::store::{Call, Page, PageRequest};
use tenure_core::time::StoreTime;

use super::{HttpStore, check_page};
use crate::wire::{AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, Code, LeasesPage, ReleaseLeasesAnswer, ms_up};

#[async_trait]
impl Serve<Acquire> for HttpStore {
    async fn serve(&self, group: &Group, ask: Acquire, call: Call) -> Result<Acquired> {
        if let ([lease], Some(queue)) = (&ask.leases[..], &ask.queue) {
            return self.acquire_within(group, lease, &ask, queue, call).await;
        }
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

/// The daemon has the queue: closing the connection withdraws the request.
#[async_trait]
impl Serve<Withdraw> for HttpStore {
    async fn serve(&self, _: &Group, _: Withdraw, _: Call) -> Result<Withdrawn> {
        Err(of_the_daemon("withdraws waiting requests"))
    }
}

#[async_trait]
impl Serve<WaitForGrants> for HttpStore {
    async fn serve(&self, _: &Option<Group>, _: WaitForGrants, _: Call) -> Result<Vec<WaitingTurn>> {
        Err(of_the_daemon("wakes waiting requests"))
    }
}

fn of_the_daemon(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the daemon of this store {what}"))
}

#[async_trait]
impl Serve<RevokeLease> for HttpStore {
    async fn serve(&self, group: &Group, ask: RevokeLease, call: Call) -> Result<Revoked> {
        let path = ["v1", "groups", group.as_str(), "leases", ask.lease.as_str()];
        let request = self.mutate(Method::DELETE, &path, call);
        let request = match &ask.of {
            // Sent twice, it would take the lease from the next holder.
            RevokeOf::Any => request.once(),
            RevokeOf::Holder(holder) => request.once().query(&[("holder", holder.as_str())]),
            RevokeOf::Token(token) => request.query(&[("token", &token.to_string())]),
        };
        self.send(request).await?.json()
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
    /// One request that the daemon answers when the lease is granted or the wait is over.
    async fn acquire_within(
        &self,
        group: &Group,
        lease: &LeaseName,
        ask: &Acquire,
        queue: &Queue,
        call: Call,
    ) -> Result<Acquired> {
        let path = ["v1", "groups", group.as_str(), "leases", lease.as_str(), "acquire"];
        let body = AcquireRequest {
            tenure: ask.tenure.clone(),
            holders: ask.holders,
            wait_ms: Some(ms_up(queue.within)),
            seen: ask.seen,
        };
        let request = self
            .mutate(Method::POST, &path, call)
            .wait(queue.within + self.inner.settings.request_timeout)
            .expects(&[Code::LeaseHeld, Code::HoldersDiffer, Code::QueueFull, Code::Unsettled])
            .json(&body);
        let answer = self.send(request).await?;
        let Some((_, problem)) = &answer.problem else {
            return Ok(answer.json::<AcquireAnswer>()?.acquired());
        };
        let refusal = problem.refusal();
        let outcome = refusal.ok_or_else(|| problem.as_ref().clone().into_error())?;
        Ok(Acquired {
            outcomes: vec![outcome],
            expires_in: Duration::ZERO,
            ttl: None,
            revision: Revision::NONE,
            before: Revision::NONE,
            as_of: StoreTime::default(),
        })
    }

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
