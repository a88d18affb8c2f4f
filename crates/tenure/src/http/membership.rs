//! Members and beats over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::membership::{
    BeatReplies, Beats, End, EndBy, EndReason, Join, Joined, Member, MemberOf, Members, SetLabels,
};
use tenure_core::store::{Call, Page};

use super::{HttpStore, check_page};
use crate::wire::{
    self, BeatsAnswer, END_REASON, JoinAnswer, JoinRequest, LabelsRequest, MembersPage, StalledWork, ms,
};

#[async_trait]
impl Serve<Join> for HttpStore {
    async fn serve(&self, group: &Group, ask: Join, call: Call) -> Result<Joined> {
        let join = ask;
        let body = JoinRequest {
            member: join.member,
            ttl_ms: Some(ms(join.ttl)),
            labels: join.labels,
        };
        let request = self
            .mutate(Method::POST, &["v1", "groups", group.as_str(), "members"], call)
            .json(&body);
        Ok(self.send(request).await?.json::<JoinAnswer>()?.into())
    }
}

#[async_trait]
impl Serve<Beats> for HttpStore {
    async fn serve(&self, group: &Group, ask: Beats, _: Call) -> Result<BeatReplies> {
        let request = self
            .harmless(Method::POST, &["v1", "groups", group.as_str(), "beats"])
            .json(&ask);
        let answer: BeatsAnswer = self.send(request).await?.json()?;
        let in_order = answer.results.len() == ask.beats.len()
            && answer
                .results
                .iter()
                .zip(&ask.beats)
                .all(|(result, beat)| result.tenure == beat.tenure);
        if !in_order {
            return Err(Error::new(
                ErrorKind::Internal,
                "the daemon's answers do not match the order of the batch",
            ));
        }
        Ok(BeatReplies {
            replies: answer.results.iter().map(wire::BeatResult::reply).collect(),
            as_of: answer.as_of,
        })
    }
}

#[async_trait]
impl Serve<End> for HttpStore {
    async fn serve(&self, group: &Group, ask: End, call: Call) -> Result<EndReason> {
        let End { tenure, by, text } = ask;
        let path = ["v1", "groups", group.as_str(), "tenures", &tenure.to_string()];
        let request = self.mutate(Method::DELETE, &path, call);
        let mut query = Vec::new();
        match by {
            EndBy::Leave => {}
            EndBy::Expel => query.push(("expel", "true")),
            EndBy::NoProgress { stopped } => query.push(("no_progress", StalledWork::of(stopped).as_str())),
        }
        query.extend(text.as_deref().map(|text| ("reason", text)));
        let request = request.query(&query);
        let answer = self.send(request).await?;
        let reason = answer
            .headers
            .get(END_REASON)
            .and_then(|reason| reason.to_str().ok())
            .and_then(EndReason::parse);
        Ok(reason.unwrap_or(EndReason::Unknown))
    }
}

#[async_trait]
impl Serve<SetLabels> for HttpStore {
    async fn serve(&self, group: &Group, ask: SetLabels, call: Call) -> Result<()> {
        let SetLabels { tenure, labels } = ask;
        let path = ["v1", "groups", group.as_str(), "tenures", &tenure.to_string(), "labels"];
        let request = self.mutate(Method::PUT, &path, call).json(&LabelsRequest { labels });
        self.send(request).await.map(drop)
    }
}

#[async_trait]
impl Serve<MemberOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: MemberOf, _: Call) -> Result<Option<Member>> {
        let member = ask.member;
        let request = self.read(&["v1", "groups", group.as_str(), "members", member.as_str()]);
        match self.send(request).await {
            Ok(answer) => Ok(Some(answer.json()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Serve<Members> for HttpStore {
    async fn serve(&self, group: &Group, ask: Members, _: Call) -> Result<Page<Member>> {
        let page = &ask.page;
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        let request = self.read(&["v1", "groups", group.as_str(), "members"]).query(&query);
        let answer: MembersPage = self.send(request).await?.json()?;
        Ok(Page {
            items: answer.members,
            next: answer.next,
        })
    }
}
