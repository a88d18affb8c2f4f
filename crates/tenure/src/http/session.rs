//! Sessions over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::session::{
    Attach, Attached, Attaches, CountSessions, DeleteOutcome, DeleteSession, DetachOutcome, Detaches, Epoch,
    ListOrphans, Orphans, PatchOutcome, PatchSession, Session, SessionByAlias, SessionOf, SessionStats, Sessions,
};
use tenure_core::store::{Call, Page};

use super::{HttpStore, check_page};
use crate::wire::{
    AttachSessionsAnswer, Code, DetachSessionsAnswer, PatchSessionRequest, SESSION_EPOCH, SessionsPage, ms_up,
};

/// Approximate bytes of names and data per request, well below the daemon's body limit.
const PART: usize = 2 << 20;

#[async_trait]
impl Serve<Attaches> for HttpStore {
    async fn serve(&self, group: &Group, ask: Attaches, call: Call) -> Result<Attached> {
        let path = ["v1", "groups", group.as_str(), "sessions-attach"];
        let request = self.mutate(Method::POST, &path, call).json(&ask);
        let answer: AttachSessionsAnswer = self.send(request).await?.json()?;
        answer.attached(&ask.attaches).ok_or_else(not_what_was_asked)
    }
}

#[async_trait]
impl Serve<Detaches> for HttpStore {
    async fn serve(&self, group: &Group, ask: Detaches, call: Call) -> Result<Vec<DetachOutcome>> {
        let path = ["v1", "groups", group.as_str(), "sessions-detach"];
        let request = self.mutate(Method::POST, &path, call).json(&ask);
        let answer: DetachSessionsAnswer = self.send(request).await?.json()?;
        answer.outcomes(&ask.detaches).ok_or_else(not_what_was_asked)
    }
}

#[async_trait]
impl Serve<PatchSession> for HttpStore {
    async fn serve(&self, group: &Group, ask: PatchSession, call: Call) -> Result<PatchOutcome> {
        let PatchSession { session, tenure, data } = ask;
        let body = PatchSessionRequest { data, tenure };
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        let request = self.mutate(Method::PATCH, &path, call).json(&body);
        let answer = self
            .send(request.expects(&[Code::SessionNotFound, Code::SessionFull]))
            .await?;
        match &answer.problem {
            None => Ok(PatchOutcome::Patched(Box::new(answer.json()?))),
            Some((Code::SessionFull, problem)) => match problem.limit {
                Some(of) => Ok(PatchOutcome::Full { of }),
                None => Err(not_what_was_asked()),
            },
            Some(_) => Ok(PatchOutcome::NotFound),
        }
    }
}

#[async_trait]
impl Serve<DeleteSession> for HttpStore {
    async fn serve(&self, group: &Group, ask: DeleteSession, call: Call) -> Result<DeleteOutcome> {
        let session = ask.session;
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        let request = self.mutate(Method::DELETE, &path, call).once();
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
}

#[async_trait]
impl Serve<SessionOf> for HttpStore {
    async fn serve(&self, group: &Group, ask: SessionOf, _: Call) -> Result<Option<Session>> {
        let session = ask.session;
        let path = ["v1", "groups", group.as_str(), "sessions", session.as_str()];
        match self.send(self.read(&path)).await {
            Ok(answer) => Ok(Some(answer.json()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Serve<SessionByAlias> for HttpStore {
    async fn serve(&self, group: &Group, ask: SessionByAlias, _: Call) -> Result<Option<Session>> {
        let alias = ask.alias;
        let page = self.list_sessions(group, &[("alias", alias.as_str())]).await?;
        Ok(page.items.into_iter().next())
    }
}

#[async_trait]
impl Serve<Sessions> for HttpStore {
    async fn serve(&self, group: &Group, ask: Sessions, _: Call) -> Result<Page<Session>> {
        let Sessions {
            state,
            older_than,
            page,
        } = ask;
        let (limit, age) = (check_page(&page)?.to_string(), ms_up(older_than).to_string());
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(state.map(|state| ("state", state.as_str())));
        query.extend((!older_than.is_zero()).then_some(("older_than_ms", age.as_str())));
        self.list_sessions(group, &query).await
    }
}

/// A fractional `overdue` is rounded up to milliseconds.
#[async_trait]
impl Serve<ListOrphans> for HttpStore {
    async fn serve(&self, group: &Group, ask: ListOrphans, _: Call) -> Result<Orphans> {
        let (overdue, limit) = (ms_up(ask.overdue).to_string(), ask.limit.to_string());
        let request = self.read(&["v1", "groups", group.as_str(), "sessions-orphans"]);
        let request = request.query(&[("overdue_ms", overdue.as_str()), ("limit", limit.as_str())]);
        self.send(request).await?.json()
    }
}

#[async_trait]
impl Serve<CountSessions> for HttpStore {
    async fn serve(&self, group: &Group, _: CountSessions, _: Call) -> Result<SessionStats> {
        let request = self.read(&["v1", "groups", group.as_str(), "sessions-stats"]);
        self.send(request).await?.json()
    }
}

impl HttpStore {
    async fn list_sessions(&self, group: &Group, query: &[(&str, &str)]) -> Result<Page<Session>> {
        let request = self.read(&["v1", "groups", group.as_str(), "sessions"]).query(query);
        let page: SessionsPage = self.send(request).await?.json()?;
        Ok(Page {
            items: page.sessions,
            next: page.next,
        })
    }
}

/// How many of these fit into one request, at least one. Each request may be applied on its own.
pub(super) fn part_of(attaches: &[Attach]) -> usize {
    let mut size = 0;
    let fits = attaches.iter().take_while(|attach| {
        size += size_of(attach);
        size <= PART
    });
    fits.count().max(1)
}

/// An estimate of its size as JSON, rarely too low.
fn size_of(attach: &Attach) -> usize {
    const FIELDS: usize = 120;
    let alias = attach.alias.as_ref().map_or(0, |alias| alias.as_str().len());
    let data = attach.data.iter();
    let data: usize = data
        .map(|(name, value)| 2 * name.len() + value.to_string().len() + 4)
        .sum();
    FIELDS + attach.session.as_str().len() + attach.connection.as_str().len() + alias + data
}

/// The request was answered and may have been applied; its outcome must be read back.
fn not_what_was_asked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the daemon's answers do not match the requested sessions",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::id::{ConnectionId, SessionId};

    use super::*;

    fn attach(n: usize, bytes: usize) -> Attach {
        let (session, connection) = (SessionId::new(format!("s{n}")), ConnectionId::new("c"));
        let mut attach = Attach::new(session.unwrap(), connection.unwrap());
        attach.data.insert("field".to_owned(), json!("x".repeat(bytes)));
        attach
    }

    #[test]
    fn batch_is_split_to_fit_the_daemons_body_limit() {
        assert_eq!(part_of(&[]), 1, "an empty batch still checks the tenure");
        let small: Vec<_> = (0..10_000).map(|n| attach(n, 10)).collect();
        assert_eq!(part_of(&small), small.len());
        let large: Vec<_> = (0..2_000).map(|n| attach(n, 4_000)).collect();
        let part = part_of(&large);
        assert!((250..=600).contains(&part), "{part}");
        let body = Attaches {
            tenure: "a@1".parse().unwrap(),
            attaches: large[..part].to_vec(),
        };
        assert!(serde_json::to_vec(&body).unwrap().len() <= PART + 100);
        assert_eq!(part_of(&[attach(0, 2 * PART)]), 1, "a single item is never split");
    }
}
