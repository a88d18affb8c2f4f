//! Sessions: their connections, their data, and the grace that starts when the last connection ends.

mod names;
mod reconcile;
mod row;
mod step;

use async_trait::async_trait;
use tenure_core::call::{Parts, Serve};
use tenure_core::error::{Error, Result};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::Revision;
use tenure_core::session::{
    Attach, Attached, Attaches, CountSessions, DeleteOutcome, DeleteSession, Detach, DetachOutcome, Detaches, Epoch,
    ListOrphans, Orphans, PatchOutcome, PatchSession, Session, SessionByAlias, SessionOf, SessionStats, Sessions,
};
use tenure_core::store::{Call, Page};
use tenure_core::time::{StoreTime, micros};

pub(crate) use self::step::part_of;
use crate::registry::{read_outcomes, read_refusal};
use crate::reply::Malformed;
use crate::store::ValkeyStore;
use crate::view::Liveness;

#[async_trait]
impl Serve<Attaches> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Attaches, call: Call) -> Result<Attached> {
        let (tenure, mut parts) = (&ask.tenure, Parts::default());
        let mut attached = parts.take(self.attach_some(group, tenure, &ask.attaches, call).await)?;
        // The script stops early when its reply gets large.
        while attached.outcomes.len() < ask.attaches.len() {
            let (_, left) = ask.attaches.split_at(attached.outcomes.len());
            let more = parts.take(self.attach_some(group, tenure, left, call).await)?;
            attached.outcomes.extend(more.outcomes);
            attached.revision = more.revision;
        }
        Ok(attached)
    }
}

#[async_trait]
impl Serve<Detaches> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Detaches, call: Call) -> Result<Vec<DetachOutcome>> {
        let Detaches { tenure, detaches } = &ask;
        let epoch = |detach: &Detach| detach.epoch.map_or(0, Epoch::get).to_string();
        let invocation = self
            .timely_call(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .number(micros(self.options.sessions.grace))
            .args(
                detaches
                    .iter()
                    .flat_map(|detach| [detach.session.to_string(), detach.connection.to_string(), epoch(detach)]),
            );
        let answer = self
            .connection
            .call(&self.scripts.detach, invocation, |reader, _| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(read_outcomes(reader, detaches.len(), step::read_detached)?),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}

#[async_trait]
impl Serve<PatchSession> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: PatchSession, call: Call) -> Result<PatchOutcome> {
        let PatchSession { session, tenure, data } = &ask;
        let invocation = self
            .timely_call(group, call)
            .arg(tenure.as_ref().map_or("", |tenure| tenure.member().as_str()))
            .number(tenure.as_ref().map_or(0, |tenure| tenure.term().get()))
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
}

#[async_trait]
impl Serve<DeleteSession> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: DeleteSession, call: Call) -> Result<DeleteOutcome> {
        let invocation = self.timely_call(group, call).arg(ask.session.as_str());
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
}

#[async_trait]
impl Serve<SessionOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: SessionOf, _: Call) -> Result<Option<Session>> {
        let found = self.sessions_by_name(group, "", &[ask.session.to_string()]).await?;
        Ok(found.into_iter().next())
    }
}

#[async_trait]
impl Serve<SessionByAlias> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: SessionByAlias, _: Call) -> Result<Option<Session>> {
        let found = self.sessions_by_name(group, ask.alias.as_str(), &[]).await?;
        Ok(found.into_iter().next())
    }
}

#[async_trait]
impl Serve<Sessions> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Sessions, _: Call) -> Result<Page<Session>> {
        let (names, next) = match ask.is_by_grace() {
            false => self.names_page(group, &ask.page).await?,
            true => self.away_page(group, &ask.page).await?,
        };
        let mut items = self.sessions_by_name(group, "", &names).await?;
        // An age needs the store's time. That of just after the read makes a session older by less than a call takes.
        let now = match ask.older_than.is_zero() {
            true => StoreTime::ZERO,
            false => self.connection.time().await?,
        };
        items.retain(|session| ask.has(session, now));
        Ok(Page { items, next })
    }
}

#[async_trait]
impl Serve<ListOrphans> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ListOrphans, _: Call) -> Result<Orphans> {
        let invocation = Self::read_call(group)
            .number(micros(ask.overdue))
            .number(u64::from(ask.limit));
        self.connection
            .call(&self.scripts.orphans, invocation, |reader, now| {
                let liveness = Liveness::read(reader, now)?;
                row::read_orphans(reader, &liveness, ask.overdue)
            })
            .await
    }
}

#[async_trait]
impl Serve<CountSessions> for ValkeyStore {
    async fn serve(&self, group: &Group, _: CountSessions, _: Call) -> Result<SessionStats> {
        self.connection
            .call(&self.scripts.session_stats, Self::read_call(group), |reader, now| {
                let liveness = Liveness::read(reader, now)?;
                let _recorded = reader.number()?;
                let (sessions, away, due) = (reader.number()?, reader.number()?, reader.number()?);
                // A gap that no step has met yet: every session gets its full grace again.
                let orphans = if liveness.has_unmet_gap() { 0 } else { due };
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
    /// Attaches the first of these, at least one if there is any.
    async fn attach_some(&self, group: &Group, tenure: &TenureId, some: &[Attach], call: Call) -> Result<Attached> {
        let invocation = self
            .timely_call(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get());
        let invocation = some.iter().fold(invocation, step::attach_args);
        let answer = self
            .connection
            .call(&self.scripts.attach, invocation, |reader, now| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(Attached {
                        outcomes: step::read_attached(reader, some, now)?,
                        revision: Revision(reader.number()?),
                        before: Revision(reader.number()?),
                    }),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}
