//! Who has room, and taking a place with one of them.

use rusqlite::{Connection, Row, params};
use tenure_core::ledger::{Candidate, Candidates, Engagement, NewEngagement, ReserveOutcome};
use tenure_core::{ProviderId, StoreTime};

use super::rows::{is, many};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{instant, read_name, statements};
use crate::writer::Answer;

statements! { "ledger/engagement.sql":
    HAS_ROOM = "has_room",
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
            Some(known) if !known.status.is_open() => return Ok(Ok(ReserveOutcome::Conflict(known))),
            Some(known) if known.provider.is_some() => {
                return Ok(Ok(ReserveOutcome::Reserved(self.as_it_is(known)?)));
            }
            known => known,
        };
        let Some(provider) = self.first_with_room(candidates)? else {
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

    fn first_with_room(&self, candidates: &Candidates) -> Result<Option<ProviderId>, Cause> {
        match candidates {
            Candidates::Ranked(ranked) => {
                for candidate in ranked {
                    if is(self.sql, HAS_ROOM, [self.roster, candidate.as_str()])? {
                        return Ok(Some(candidate.clone()));
                    }
                }
                Ok(None)
            }
            Candidates::Any { fresh_since } => {
                let best = available(self.sql, self.roster, None, 1, *fresh_since)?.pop();
                Ok(best.map(|candidate| candidate.provider))
            }
        }
    }
}
