//! Engagements: written down, moved, expired.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use tenure_core::ledger::{
    Engagement, EngagementChange, EngagementOutcome, ExpiredBatch, Move, NewEngagement, Provider, Reason, Status,
    Version,
};
use tenure_core::{EngagementId, Error, ErrorKind, ProviderId};

use super::provider::no_provider;
use super::rows::{many, one};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{
    instant, read_instant, read_instant_or_none, read_name, read_name_or_none, read_number, read_span_or_none, span,
    statements,
};
use crate::writer::Answer;

statements! { "ledger/engagement.sql":
    GET = "get",
    INSERT = "insert",
    UPDATE = "update",
    DUE = "due",
    NEXT_DUE = "next_due",
    REMOVE_CLOSED = "remove_closed",
}

fn read_engagement(row: &Row<'_>) -> Result<Engagement, Cause> {
    let status: String = row.get(2)?;
    Ok(Engagement {
        engagement: read_name(row, 0)?,
        provider: read_name_or_none(row, 1)?,
        status: Status::parse(&status).ok_or(Cause::Strange(status))?,
        created_at: read_instant(row, 3)?,
        changed_at: read_instant(row, 4)?,
        expires_at: read_instant_or_none(row, 5)?,
        version: Version(read_number(row, 6)?),
        active_for: read_span_or_none(row, 7)?,
    })
}

pub(super) fn get(sql: &Connection, roster: &str, engagement: &EngagementId) -> Result<Option<Engagement>, Cause> {
    one(sql, GET, [roster, engagement.as_str()], read_engagement)
}

impl Step<'_> {
    pub(super) fn engagement(&self, engagement: &EngagementId) -> Result<Option<Engagement>, Cause> {
        get(self.sql, self.roster, engagement)
    }

    /// The rows of these providers, in order of their names, each once.
    fn providers(&self, mut names: Vec<ProviderId>) -> Result<Vec<Provider>, Cause> {
        names.sort();
        names.dedup();
        let rows = names
            .iter()
            .map(|name| self.provider(name))
            .collect::<Result<Vec<_>, _>>();
        Ok(rows?.into_iter().flatten().collect())
    }

    pub(super) fn as_it_is(&self, engagement: Engagement) -> Result<EngagementChange, Cause> {
        Ok(EngagementChange {
            providers: self.providers(engagement.provider.iter().cloned().collect())?,
            engagement,
            changed: false,
        })
    }

    /// What this step has written, where the engagement was of `was` before.
    fn as_written(&self, engagement: &EngagementId, was: Option<ProviderId>) -> Result<EngagementChange, Cause> {
        let row = self
            .engagement(engagement)?
            .ok_or_else(|| Cause::Strange(format!("the engagement {engagement} was written and is not there")))?;
        Ok(EngagementChange {
            providers: self.providers(was.into_iter().chain(row.provider.clone()).collect())?,
            engagement: row,
            changed: true,
        })
    }

    pub(super) fn create(&mut self, new: &NewEngagement) -> Answer<EngagementOutcome> {
        if let Some(known) = self.engagement(&new.engagement)? {
            let is_others = new.provider.is_some() && new.provider != known.provider;
            return Ok(Ok(match is_others || !known.status.is_open() {
                true => EngagementOutcome::Conflict(known),
                false => EngagementOutcome::Done(self.as_it_is(known)?),
            }));
        }
        if let Some(provider) = &new.provider
            && self.provider(provider)?.is_none()
        {
            return Ok(Err(no_provider(provider)));
        }
        self.insert(new).map(|done| Ok(EngagementOutcome::Done(done)))
    }

    pub(super) fn insert(&mut self, new: &NewEngagement) -> Result<EngagementChange, Cause> {
        self.because(Reason::Asked)?;
        self.sql.prepare_cached(INSERT)?.execute(params![
            self.roster,
            new.engagement.as_str(),
            new.provider.as_ref().map(ProviderId::as_str),
            new.status.as_str(),
            new.first_expiry().map(|after| instant(self.now + after)),
            new.active_for.map(span),
        ])?;
        self.as_written(&new.engagement, None)
    }

    /// Writes a row that differs from what is there.
    pub(super) fn update(&mut self, row: &Engagement, was: Option<ProviderId>) -> Result<EngagementChange, Cause> {
        self.because(Reason::Asked)?;
        self.sql.prepare_cached(UPDATE)?.execute(params![
            self.roster,
            row.engagement.as_str(),
            row.provider.as_ref().map(ProviderId::as_str),
            row.status.as_str(),
            row.expires_at.map(instant),
        ])?;
        self.as_written(&row.engagement, was)
    }

    pub(super) fn move_to(&mut self, engagement: &EngagementId, to: &Move) -> Answer<EngagementOutcome> {
        let Some(known) = self.engagement(engagement)? else {
            let message = format!("the roster has no engagement {engagement}");
            return Ok(Err(Error::new(ErrorKind::NotFound, message)));
        };
        let row = Engagement {
            status: to.status.unwrap_or(known.status),
            provider: to.provider.applied_to(&known),
            expires_at: match known.status.is_open() {
                true => to.expires_at(&known, self.now),
                false => known.expires_at,
            },
            ..known.clone()
        };
        if row == known {
            return Ok(Ok(EngagementOutcome::Done(self.as_it_is(known)?)));
        }
        // An ended engagement keeps its status and its provider.
        if !known.status.is_open() {
            return Ok(Ok(EngagementOutcome::Conflict(known)));
        }
        if let Some(provider) = row.provider.as_ref().filter(|_| row.provider != known.provider)
            && self.provider(provider)?.is_none()
        {
            return Ok(Err(no_provider(provider)));
        }
        let done = self.update(&row, known.provider)?;
        Ok(Ok(EngagementOutcome::Done(done)))
    }

    pub(super) fn remove_closed(&mut self, age: Duration, limit: u32) -> Answer<u64> {
        let before = instant(self.now.minus(age));
        self.because(Reason::Asked)?;
        let removed = self
            .sql
            .prepare_cached(REMOVE_CLOSED)?
            .execute(params![self.roster, before, limit])?;
        Ok(Ok(removed as u64))
    }

    pub(super) fn expire_due(&mut self, limit: u32) -> Answer<ExpiredBatch> {
        let until = params![self.roster, instant(self.now), limit];
        let mut names: Vec<EngagementId> = many(self.sql, DUE, until, |row| read_name(row, 0))?;
        names.sort();
        let (mut expired, mut of) = (Vec::new(), Vec::new());
        for name in names {
            let Some(known) = self.engagement(&name)? else { continue };
            let row = Engagement {
                status: Status::Expired,
                ..known
            };
            let done = self.update(&row, None)?;
            of.extend(done.engagement.provider.clone());
            expired.push(done.engagement);
        }
        let next = one(self.sql, NEXT_DUE, [self.roster], |row| Ok(read_instant(row, 0)?))?;
        Ok(Ok(ExpiredBatch {
            expired,
            providers: self.providers(of)?,
            next,
        }))
    }
}
