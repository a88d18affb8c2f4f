//! The outbox, written by triggers, and versions.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use tenure_core::ledger::{Dirty, Version};
use tenure_core::{ProviderId, RosterName};

use super::provider;
use super::rows::{many, one};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{number, read_instant, read_name, read_number, statements};
use crate::writer::Answer;

statements! { "ledger/outbox.sql":
    OLDEST = "oldest",
    COUNTS = "counts",
    VERSION = "version",
    CLEAN = "clean",
}
statements! { "ledger/step.sql":
    NEXT_VERSION = "next_version",
}

pub(super) fn dirty(sql: &Connection, roster: &str, limit: u32) -> Result<Vec<Dirty>, Cause> {
    // The rows are read one by one, from the same snapshot as the list.
    let snapshot = sql.unchecked_transaction()?;
    let mut all = many(&snapshot, OLDEST, params![roster, limit], |row| {
        Ok(Dirty {
            provider: read_name(row, 0)?,
            version: Version(read_number(row, 1)?),
            since: read_instant(row, 2)?,
            row: None,
        })
    })?;
    for dirty in &mut all {
        dirty.row = provider::get(&snapshot, roster, dirty.provider.as_str())?;
    }
    Ok(all)
}

pub(super) fn counts(sql: &Connection) -> Result<BTreeMap<RosterName, u64>, Cause> {
    let counts = many(sql, COUNTS, [], |row| Ok((read_name(row, 0)?, read_number(row, 1)?)))?;
    Ok(counts.into_iter().collect())
}

/// The version of a provider's row in the outbox, which this step has put there.
pub(super) fn version(sql: &Connection, roster: &str, provider: &ProviderId) -> Result<Version, Cause> {
    let version = one(sql, VERSION, [roster, provider.as_str()], |row| {
        Ok(read_number(row, 0)?)
    })?;
    version
        .map(Version)
        .ok_or_else(|| Cause::Strange(format!("the provider {provider} left nothing in the outbox")))
}

pub(super) fn next_version(sql: &Connection) -> Answer<Version> {
    let drawn = sql
        .prepare_cached(NEXT_VERSION)?
        .query_row([], |row| read_number(row, 0))?;
    Ok(Ok(Version(drawn)))
}

impl Step<'_> {
    pub(super) fn clean(&mut self, rows: &[(ProviderId, Version)]) -> Answer<u64> {
        let mut clean = self.sql.prepare_cached(CLEAN)?;
        let mut cleaned = 0;
        for (provider, version) in rows {
            cleaned += clean.execute(params![self.roster, provider.as_str(), number(version.0)])? as u64;
        }
        Ok(Ok(cleaned))
    }
}
