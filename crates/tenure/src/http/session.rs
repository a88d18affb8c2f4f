//! Sessions over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Alias, Group, SessionId, TenureId};
use tenure_core::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Epoch, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore, check_attaches, check_count, check_data,
};
use tenure_core::store::{Call, Page, PageRequest, check_limit};

use super::{HttpStore, check_page};
use crate::wire::{
    self, AttachSessionsAnswer, AttachSessionsRequest, Code, ConnectionToDetach, DetachSessionsAnswer,
    DetachSessionsRequest, OrphansAnswer, PatchSessionRequest, SESSION_EPOCH, SessionToAttach, SessionsPage, ms_up,
};

/// About how many bytes of names and data go into one request: well below what a daemon reads.
const PART: usize = 2 << 20;

#[async_trait]
impl SessionStore for HttpStore {
    /// What is larger than a daemon reads at once goes in several requests, each of which may be applied alone.
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        check_attaches(attaches)?;
        let mut parts = parts(attaches).into_iter();
        let first = parts.next().unwrap_or_default();
        let mut all = self.attach_part(group, tenure, first, call).await?;
        for part in parts {
            let more = self.attach_part(group, tenure, part, call).await?;
            all.outcomes.extend(more.outcomes);
            all.revision = more.revision;
        }
        Ok(all)
    }

    async fn detach(
        &self,
        group: &Group,
        tenure: &TenureId,
        detaches: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        check_count(detaches.len(), "detaches")?;
        let body = DetachSessionsRequest {
            tenure: tenure.clone(),
            connections: detaches.iter().map(ConnectionToDetach::from).collect(),
        };
        let path = ["v1", "groups", group.as_str(), "sessions-detach"];
        let request = self.mutate(Method::POST, &path, call).json(&body);
        let answer: DetachSessionsAnswer = self.send(request).await?.json()?;
        answer.outcomes(detaches).ok_or_else(not_what_was_asked)
    }

    async fn patch_session(
        &self,
        group: &Group,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
        call: Call,
    ) -> Result<PatchOutcome> {
        check_data(data)?;
        let body = PatchSessionRequest {
            data: data.clone(),
            tenure: tenure.cloned(),
        };
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        let request = self.mutate(Method::PATCH, &path, call).json(&body);
        let answer = self
            .send(request.expects(&[Code::SessionNotFound, Code::SessionFull]))
            .await?;
        match &answer.problem {
            None => Ok(PatchOutcome::Patched(Box::new(answer.json::<wire::Session>()?.into()))),
            Some((Code::SessionFull, problem)) => match problem.limit {
                Some(of) => Ok(PatchOutcome::Full { of }),
                None => Err(not_what_was_asked()),
            },
            Some(_) => Ok(PatchOutcome::NotFound),
        }
    }

    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        let request = self.mutate(Method::DELETE, &path, call);
        let answer = self
            .send(request.expects(&[Code::SessionNotFound, Code::SessionActive]))
            .await?;
        match &answer.problem {
            None => {
                let epoch = answer.headers.get(SESSION_EPOCH).and_then(|epoch| epoch.to_str().ok());
                let epoch = epoch.and_then(|epoch| Epoch::new(epoch.parse().ok()?).ok());
                epoch
                    .map(|epoch| DeleteOutcome::Deleted { epoch })
                    .ok_or_else(not_what_was_asked)
            }
            Some((Code::SessionActive, problem)) => match problem.connections {
                Some(connections) => Ok(DeleteOutcome::Active { connections }),
                None => Err(not_what_was_asked()),
            },
            Some(_) => Ok(DeleteOutcome::NotFound),
        }
    }

    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        match self.send(self.read(&path)).await {
            Ok(answer) => Ok(Some(answer.json::<wire::Session>()?.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        let page = self.list_sessions(group, &[("alias", alias.as_str())]).await?;
        Ok(page.items.into_iter().next())
    }

    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(state.map(|state| ("state", state.as_str())));
        self.list_sessions(group, &query).await
    }

    /// An `overdue` that is no whole number of milliseconds counts as the next longer one that is.
    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        let (overdue, limit) = (ms_up(overdue).to_string(), check_limit(limit)?.to_string());
        let request = self.read(&["v1", "groups", group.as_str(), "sessions-orphans"]);
        let request = request.query(&[("overdue_ms", overdue.as_str()), ("limit", limit.as_str())]);
        Ok(self.send(request).await?.json::<OrphansAnswer>()?.into())
    }

    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        let request = self.read(&["v1", "groups", group.as_str(), "sessions-stats"]);
        Ok(self.send(request).await?.json::<wire::SessionStats>()?.into())
    }
}

impl HttpStore {
    async fn attach_part(&self, group: &Group, tenure: &TenureId, part: &[Attach], call: Call) -> Result<Attached> {
        let body = AttachSessionsRequest {
            tenure: tenure.clone(),
            sessions: part.iter().map(SessionToAttach::from).collect(),
        };
        let path = ["v1", "groups", group.as_str(), "sessions-attach"];
        let request = self.mutate(Method::POST, &path, call).json(&body);
        let answer: AttachSessionsAnswer = self.send(request).await?.json()?;
        answer.attached(part).ok_or_else(not_what_was_asked)
    }

    async fn list_sessions(&self, group: &Group, query: &[(&str, &str)]) -> Result<Page<Session>> {
        let request = self.read(&["v1", "groups", group.as_str(), "sessions"]).query(query);
        let page: SessionsPage = self.send(request).await?.json()?;
        Ok(Page {
            items: page.sessions.into_iter().map(Into::into).collect(),
            next: page.next,
        })
    }
}

/// Cuts a batch into what one request may carry.
fn parts(attaches: &[Attach]) -> Vec<&[Attach]> {
    let (mut parts, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, attach) in attaches.iter().enumerate() {
        let own = size_of(attach);
        if at > from && size + own > PART {
            parts.push(&attaches[from..at]);
            (from, size) = (at, 0);
        }
        size += own;
    }
    parts.push(&attaches[from..]);
    parts
}

/// About how much room it takes as JSON, seldom less than it does.
fn size_of(attach: &Attach) -> usize {
    const FIELDS: usize = 120;
    let alias = attach.alias.as_ref().map_or(0, |alias| alias.as_str().len());
    let data = attach.data.iter();
    let data: usize = data
        .map(|(name, value)| 2 * name.len() + value.to_string().len() + 4)
        .sum();
    FIELDS + attach.session.as_str().len() + attach.connection.as_str().len() + alias + data
}

/// The request was answered, and may well have been done; what it came to has to be read back.
fn not_what_was_asked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the daemon's answers about sessions are not those that were asked for",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::id::ConnectionId;

    use super::*;

    fn attach(n: usize, bytes: usize) -> Attach {
        let (session, connection) = (SessionId::new(format!("s{n}")), ConnectionId::new("c"));
        let mut attach = Attach::new(session.unwrap(), connection.unwrap());
        attach.data.insert("field".to_owned(), json!("x".repeat(bytes)));
        attach
    }

    #[test]
    fn a_batch_is_cut_into_what_a_daemon_reads() {
        assert_eq!(parts(&[]), [&[] as &[Attach]], "the tenure alone is checked as well");
        let small: Vec<_> = (0..10_000).map(|n| attach(n, 10)).collect();
        assert_eq!(parts(&small).len(), 1);
        let large: Vec<_> = (0..2_000).map(|n| attach(n, 4_000)).collect();
        let parts = parts(&large);
        assert_eq!(parts.concat(), large);
        assert!((4..=8).contains(&parts.len()), "{}", parts.len());
        for part in parts {
            let body = AttachSessionsRequest {
                tenure: "a@1".parse().unwrap(),
                sessions: part.iter().map(SessionToAttach::from).collect(),
            };
            assert!(serde_json::to_vec(&body).unwrap().len() <= PART + 100);
        }
    }
}
