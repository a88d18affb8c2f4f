//! Taking rows and removals over from the ledger.

use rusqlite::{OptionalExtension, params};
use tenure_core::event::EventKind;
use tenure_core::ledger::{Provider, Version};
use tenure_core::roster::{Entry, Put, PutOutcome, Standing};
use tenure_core::{ProviderId, StoreTime, TenureId};

use super::row::write_row;
use super::table::Head;
use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, number, read_number, statements};
use crate::step::{Answer, Step};

use super::offline::Noted;

statements! { "roster.sql":
    DELETE = "delete",
    REMOVED_VERSION = "removed_version",
    REMEMBER = "remember",
    BRING_BACK = "bring_back",
}

impl Step<'_> {
    /// Takes a part over, entry by entry.
    pub(super) fn put_providers(&mut self, puts: &[Put]) -> Answer<Vec<PutOutcome>> {
        let outcomes = puts
            .iter()
            .map(|put| self.put_provider(put))
            .collect::<Result<_, Cause>>()?;
        self.engage_brake()?;
        Ok(Ok(outcomes))
    }

    fn put_provider(&mut self, put: &Put) -> Result<PutOutcome, Cause> {
        let provider = put.entry.provider();
        let before = self.head_of(provider);
        let removed = match before {
            Some(_) => None,
            None => self.removed_version(provider)?,
        };
        let there = before.as_ref().map(|head| head.version).or(removed);
        let there = there.unwrap_or(Version::NONE);
        let applied = put.over.allows(Some(there), put.entry.version());
        let online = match applied {
            true => self.take_over(&put.entry, before, removed.is_some())?,
            false => before.and_then(|head| head.online),
        };
        Ok(PutOutcome {
            applied,
            version: if applied { put.entry.version() } else { there },
            standing: match online {
                Some(tenure) => self.stand(&tenure)?,
                None => Standing::Offline,
            },
        })
    }

    /// The writer's view of a row.
    pub(super) fn head_of(&self, provider: &ProviderId) -> Option<Head> {
        self.live.lock().roster.head(provider).cloned()
    }

    fn removed_version(&self, provider: &ProviderId) -> Result<Option<Version>, Cause> {
        let mut select = self.sql.prepare_cached(REMOVED_VERSION)?;
        let version = select.query_row(params![self.id, provider.as_str()], |row| read_number(row, 0));
        Ok(version.optional()?.map(Version))
    }

    /// Writes an entry over what is there. Answers the tenure that the row names that is there now.
    fn take_over(&mut self, entry: &Entry, before: Option<Head>, was_removed: bool) -> Result<Option<TenureId>, Cause> {
        let head = match entry {
            Entry::Row(row) => Some(self.write(row, was_removed)?),
            Entry::Gone { provider, version } => {
                self.remove(provider)?;
                self.remember(provider, *version)?;
                None
            }
        };
        if let (Some(before), Some(head)) = (&before, &head)
            && before.active != head.active
        {
            let to = entry.provider().member();
            self.emit(Draft::new(EventKind::of_activation(head.active)).to(&to))?;
        }
        let named = head.and_then(|head| head.online);
        // The ledger has followed, or has another one.
        if let Some(old) = before
            .and_then(|head| head.online)
            .filter(|old| named.as_ref() != Some(old))
        {
            self.forget_offline(&old)?;
        }
        self.meta.roster.high = self.meta.roster.high.max(entry.version());
        self.meta.roster.changes += 1;
        Ok(named)
    }

    fn write(&mut self, row: &Provider, was_removed: bool) -> Result<Head, Cause> {
        write_row(self.sql, self.id, row)?;
        if was_removed {
            let mut bring_back = self.sql.prepare_cached(BRING_BACK)?;
            bring_back.execute(params![self.id, row.provider.as_str()])?;
        }
        let head = Head::of(row);
        self.undo
            .rewrite(&mut self.live.lock(), &row.provider, Some(head.clone()));
        Ok(head)
    }

    /// Removes a row, in the file and in memory.
    fn remove(&mut self, provider: &ProviderId) -> Result<(), Cause> {
        self.sql
            .prepare_cached(DELETE)?
            .execute(params![self.id, provider.as_str()])?;
        self.undo.rewrite(&mut self.live.lock(), provider, None);
        Ok(())
    }

    fn remember(&self, provider: &ProviderId, version: Version) -> Result<(), Cause> {
        self.sql.prepare_cached(REMEMBER)?.execute(params![
            self.id,
            provider.as_str(),
            number(version.0),
            instant(self.now)
        ])?;
        Ok(())
    }

    /// How the tenure of a row stands. One that is past its end time ends; one that had ended before the row arrived joins
    /// those that the ledger has to follow.
    pub(super) fn stand(&mut self, tenure: &TenureId) -> Result<Standing, Cause> {
        if self.end_if_past(tenure)? {
            return Ok(Standing::Ended);
        }
        if self.is_current(tenure) {
            return Ok(Standing::Alive);
        }
        if self.is_offlined(tenure)? {
            return Ok(Standing::Ended);
        }
        let Some(record) = self.record_of(tenure)? else {
            return Ok(Standing::Unknown);
        };
        let noted = Noted {
            ended_at: record.at,
            at: StoreTime::min(record.end, record.at),
            reason: record.reason,
            heard_at: None,
        };
        self.add_offline(tenure, &noted)?;
        self.set_followed(tenure, false)?;
        Ok(Standing::Ended)
    }
}
