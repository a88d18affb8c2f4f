//! Members and beats over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, MAX_BEATS, Member, MembershipStore};
use tenure_core::store::{Call, Page, PageRequest};

use super::{HttpStore, check_page};
use crate::wire::{self, BeatItem, BeatsAnswer, BeatsRequest, END_REASON, JoinAnswer, JoinRequest, MembersPage, ms};

#[async_trait]
impl MembershipStore for HttpStore {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        let body = JoinRequest {
            member: join.member.clone(),
            ttl_ms: Some(ms(join.ttl)),
            labels: join.labels.clone(),
        };
        let request = self
            .mutate(Method::POST, &["v1", "groups", group.as_str(), "members"], call)
            .json(&body);
        Ok(self.send(request).await?.json::<JoinAnswer>()?.into())
    }

    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        // The daemon knows the limits of a ttl; only what would be too much to send is refused here.
        if beats.len() > MAX_BEATS {
            return Err(Error::invalid(format!(
                "{} beats in one call; at most {MAX_BEATS}",
                beats.len()
            )));
        }
        let items = beats
            .iter()
            .map(|beat| BeatItem {
                tenure: beat.tenure.clone(),
                ttl_ms: beat.ttl.map(ms),
                revision: beat.revision,
            })
            .collect();
        let body = BeatsRequest { beats: items };
        let request = self
            .harmless(Method::POST, &["v1", "groups", group.as_str(), "beats"])
            .json(&body);
        let answer: BeatsAnswer = self.send(request).await?.json()?;
        let in_order = answer.results.len() == beats.len()
            && answer
                .results
                .iter()
                .zip(beats)
                .all(|(result, beat)| result.tenure == beat.tenure);
        if !in_order {
            return Err(Error::new(
                ErrorKind::Internal,
                "the daemon's answers to a batch are not in the order asked",
            ));
        }
        Ok(Beaten {
            replies: answer.results.iter().map(wire::BeatResult::reply).collect(),
            as_of: answer.as_of,
        })
    }

    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        let path = ["v1", "groups", group.as_str(), "tenures", &tenure.to_string()];
        let request = self.mutate(Method::DELETE, &path, call);
        let request = if by == EndBy::Expel {
            request.query(&[("expel", "true")])
        } else {
            request
        };
        let answer = self.send(request).await?;
        let reason = answer
            .headers
            .get(END_REASON)
            .and_then(|reason| reason.to_str().ok())
            .and_then(EndReason::parse);
        Ok(reason.unwrap_or(EndReason::Unknown))
    }

    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let request = self.read(&["v1", "groups", group.as_str(), "members", member.as_str()]);
        match self.send(request).await {
            Ok(answer) => Ok(Some(answer.json::<wire::Member>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        let request = self.read(&["v1", "groups", group.as_str(), "members"]).query(&query);
        let answer: MembersPage = self.send(request).await?.json()?;
        Ok(Page {
            items: answer.members.into_iter().map(Into::into).collect(),
            next: answer.next,
        })
    }
}
