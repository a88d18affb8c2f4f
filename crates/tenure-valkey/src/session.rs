//! Sessions: their connections, their data, and the grace that begins when the last connection goes.

mod names;
mod reconcile;
mod row;
mod step;

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Alias, Group, SessionId, TenureId};
use tenure_core::membership::Revision;
use tenure_core::parts::Parts;
use tenure_core::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Epoch, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore, check_attaches, check_count, check_data,
};
use tenure_core::store::{Call, Page, PageRequest, check_limit};
use tenure_core::time::{StoreTime, micros};

use crate::registry::{read_outcomes, read_refusal};
use crate::reply::Malformed;
use crate::store::ValkeyStore;
use crate::view::Life;

#[async_trait]
impl SessionStore for ValkeyStore {
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        check_attaches(attaches)?;
        let mut attached = Attached {
            outcomes: Vec::with_capacity(attaches.len()),
            revision: Revision::NONE,
            before: Revision::NONE,
        };
        let mut parts = Parts::default();
        // Also without any item the tenure is checked.
        loop {
            let (done, left) = attaches.split_at(attached.outcomes.len());
            let part = self.attach_part(group, tenure, step::part_of(left), call).await;
            let part = parts.take(part)?;
            if done.is_empty() {
                attached.before = part.before;
            }
            attached.revision = part.revision;
            let stuck = part.outcomes.is_empty();
            attached.outcomes.extend(part.outcomes);
            if stuck || attached.outcomes.len() >= attaches.len() {
                return Ok(attached);
            }
        }
    }

    async fn detach(
        &self,
        group: &Group,
        tenure: &TenureId,
        detaches: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        check_count(detaches.len(), "detaches")?;
        let (mut parts, mut done) = (detaches.chunks(step::DETACHES), Parts::default());
        let first = parts.next().unwrap_or_default();
        let mut outcomes = done.take(self.detach_part(group, tenure, first, call).await)?;
        for part in parts {
            outcomes.extend(done.take(self.detach_part(group, tenure, part, call).await)?);
        }
        Ok(outcomes)
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
        let invocation = self
            .punctual(group, call)
            .arg(tenure.map_or("", |tenure| tenure.member().as_str()))
            .number(tenure.map_or(0, |tenure| tenure.term().get()))
            .arg(session.as_str())
            .args(
                data.iter()
                    .flat_map(|(field, value)| [field.clone(), step::json(value)]),
            );
        let answer = self
            .connection
            .call(&self.scripts.patch_session, invocation, |reader, now| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(step::read_patched(&reader.value()?, session, now)?),
                })
            })
            .await?;
        match (answer, tenure) {
            (Ok(outcome), _) => Ok(outcome),
            (Err(reason), Some(tenure)) => Err(Error::ended(tenure, reason)),
            (Err(reason), None) => Err(crate::view::foreign(format!("the refusal {}", reason.as_str()))),
        }
    }

    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        let invocation = self.punctual(group, call).arg(session.as_str());
        self.connection
            .call(&self.scripts.delete_session, invocation, |reader, _| {
                let (what, number) = (reader.text()?, reader.number()?);
                Ok(match what.as_str() {
                    "n" => DeleteOutcome::NotFound,
                    "c" => DeleteOutcome::Active { connections: number },
                    "d" => DeleteOutcome::Deleted {
                        epoch: Epoch::new(number).map_err(|_| Malformed(format!("the epoch {number}")))?,
                    },
                    other => return Err(Malformed(format!("the outcome {other:?}"))),
                })
            })
            .await
    }

    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        let found = self.sessions_by_name(group, "", &[session.to_string()]).await?;
        Ok(found.into_iter().next())
    }

    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        let found = self.sessions_by_name(group, alias.as_str(), &[]).await?;
        Ok(found.into_iter().next())
    }

    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        check_limit(page.limit)?;
        let (names, next) = match state {
            None | Some(SessionState::Active) => self.names_page(group, page).await?,
            Some(SessionState::Disconnected | SessionState::Orphan) => self.away_page(group, page).await?,
        };
        let mut items = self.sessions_by_name(group, "", &names).await?;
        items.retain(|session| state.is_none_or(|state| session.state == state));
        Ok(Page { items, next })
    }

    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        check_limit(limit)?;
        let invocation = Self::reading(group).number(micros(overdue)).number(u64::from(limit));
        self.connection
            .call(&self.scripts.orphans, invocation, |reader, now| {
                let life = Life::read(reader, now)?;
                row::read_orphans(reader, &life, overdue)
            })
            .await
    }

    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        self.connection
            .call(&self.scripts.session_stats, Self::reading(group), |reader, now| {
                let life = Life::read(reader, now)?;
                let noticed = StoreTime::from_micros(reader.number()?);
                let (sessions, away, due) = (reader.number()?, reader.number()?, reader.number()?);
                // A gap that nobody has noticed yet: everyone has the whole grace anew.
                let unnoticed = life.resumed_at() == now && noticed != now;
                let orphans = if unnoticed { 0 } else { due };
                Ok(SessionStats {
                    active: sessions.saturating_sub(away),
                    disconnected: away.saturating_sub(orphans),
                    orphans,
                })
            })
            .await
    }
}

impl ValkeyStore {
    async fn attach_part(&self, group: &Group, tenure: &TenureId, part: &[Attach], call: Call) -> Result<Attached> {
        let invocation = self
            .punctual(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get());
        let invocation = part.iter().fold(invocation, step::attach_args);
        let answer = self
            .connection
            .call(&self.scripts.attach, invocation, |reader, now| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(Attached {
                        outcomes: step::read_attached(reader, part, now)?,
                        revision: Revision(reader.number()?),
                        before: Revision(reader.number()?),
                    }),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }

    async fn detach_part(
        &self,
        group: &Group,
        tenure: &TenureId,
        part: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        let epoch = |detach: &Detach| detach.epoch.map_or(0, Epoch::get).to_string();
        let invocation = self
            .punctual(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .number(micros(self.options.sessions.grace))
            .args(
                part.iter()
                    .flat_map(|detach| [detach.session.to_string(), detach.connection.to_string(), epoch(detach)]),
            );
        let answer = self
            .connection
            .call(&self.scripts.detach, invocation, |reader, _| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(read_outcomes(reader, part.len(), step::read_detached)?),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}
