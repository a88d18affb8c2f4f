//! Who has room, and taking a place with one of them.

use rusqlite::{Connection, Row, params};
use tenure_core::ledger::{Candidate, Candidates, Engagement, NewEngagement, Reason, ReserveOutcome};
use tenure_core::{ProviderId, StoreTime};

use super::provider::no_provider;
use super::rows::{is, many, one};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{instant, read_name, statements};
use crate::writer::Answer;

statements! { "ledger/engagement.sql":
    NEXT_FREE = "next_free",
    FREE_ONE = "free_one",
    IS_FULL = "is_full",
    RECOUNT = "recount",
    MISCOUNTED = "miscounted",
    FREE = "free",
    FREE_AND_FRESH = "free_and_fresh",
}

pub(super) fn available(
    sql: &Connection,
    roster: &str,
    after: Option<&(u32, ProviderId)>,
    limit: u32,
    fresh_since: Option<StoreTime>,
) -> Result<Vec<Candidate>, Cause> {
    let after = after.map(|(occupancy, provider)| (i64::from(*occupancy), provider.as_str()));
    let (occupancy, provider) = after.unwrap_or((-1, ""));
    let read = |row: &Row<'_>| {
        Ok(Candidate {
            provider: read_name(row, 0)?,
            occupancy: row.get(1)?,
            capacity: row.get(2)?,
        })
    };
    match fresh_since {
        None => many(sql, FREE, params![roster, limit, occupancy, provider], read),
        Some(since) => many(
            sql,
            FREE_AND_FRESH,
            params![roster, limit, occupancy, provider, instant(since)],
            read,
        ),
    }
}

impl Step<'_> {
    /// There is one writer, so a provider that has room now has it until this step ends.
    pub(super) fn reserve(&mut self, new: &NewEngagement, candidates: &Candidates) -> Answer<ReserveOutcome> {
        let known = match self.engagement(&new.engagement)? {
            Some(known) if new.conflicts_with(&known) => return Ok(Ok(ReserveOutcome::Conflict(known))),
            Some(known) if known.provider.is_some() => {
                return Ok(Ok(ReserveOutcome::Reserved(self.as_it_is(known)?)));
            }
            known => known,
        };
        if let Some(provider) = &new.provider
            && self.provider(provider)?.is_none()
        {
            return Ok(Err(no_provider(provider)));
        }
        let Some(provider) = self.take(new.provider.as_ref(), candidates)? else {
            return Ok(Ok(ReserveOutcome::NoneAvailable));
        };
        let done = match known {
            Some(known) => {
                let row = Engagement {
                    provider: Some(provider),
                    ..known
                };
                self.update(&row, None)?
            }
            None => self.insert(&NewEngagement {
                provider: Some(provider),
                ..new.clone()
            })?,
        };
        Ok(Ok(ReserveOutcome::Reserved(done)))
    }

    /// The least occupied candidate with room; of several the one that has been idle longest.
    fn next_free(&self, only: Option<&ProviderId>, candidates: &Candidates) -> Result<Option<ProviderId>, Cause> {
        let fresh_since = candidates.fresh_since().map(instant);
        if let Some(only) = only {
            let free = one(
                self.sql,
                FREE_ONE,
                params![self.roster, fresh_since, only.as_str()],
                |row| read_name(row, 0),
            )?;
            return Ok(free.filter(|provider| candidates.admit(provider)));
        }
        let mut select = self.sql.prepare_cached(NEXT_FREE)?;
        let mut rows = select.query(params![self.roster, fresh_since])?;
        while let Some(row) = rows.next()? {
            let provider = read_name(row, 0)?;
            if candidates.admit(&provider) {
                return Ok(Some(provider));
            }
        }
        Ok(None)
    }

    /// Takes a place with a provider. Its occupancy is counted first: engagements may have been written without triggers.
    fn take(&mut self, only: Option<&ProviderId>, candidates: &Candidates) -> Result<Option<ProviderId>, Cause> {
        while let Some(provider) = self.next_free(only, candidates)? {
            if !is(self.sql, IS_FULL, [self.roster, provider.as_str()])? {
                return Ok(Some(provider));
            }
            self.recount_one(&provider)?;
        }
        Ok(None)
    }

    fn recount_one(&mut self, provider: &ProviderId) -> Result<(), Cause> {
        self.because(Reason::Asked)?;
        self.sql
            .prepare_cached(RECOUNT)?
            .execute([self.roster, provider.as_str()])?;
        Ok(())
    }

    pub(super) fn recount(&mut self) -> Answer<u64> {
        let wrong: Vec<ProviderId> = many(self.sql, MISCOUNTED, [self.roster], |row| read_name(row, 0))?;
        for provider in &wrong {
            self.recount_one(provider)?;
        }
        Ok(Ok(wrong.len() as u64))
    }
}
