//! Going through a roster: what is there is told for comparing with the ledger, and what does not fit together is mended.
//!
//! No step of this store leaves any such thing behind, but a hand can have edited the file, or a disk can have damaged
//! it. Four walks follow each other: over the rows, over what was removed, over the ended tenures that the ledger has to
//! follow, and over what is in memory. Each entry is looked at on its own and in the transaction of its part, so it is
//! safe beside traffic. What they find of the kinds of [`drift`]: rows that cannot be read; rows that memory does not have
//! as they are; what is in memory without a row; rows whose tenure has ended without the ledger being told; and pending
//! tenures that no row names.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use tenure_core::ledger::{Provider, Version};
use tenure_core::roster::{Entry, Offlined, TOMBSTONES_KEPT, Verified};
use tenure_core::store::bad_cursor;
use tenure_core::sweep::drift;
use tenure_core::{ProviderId, Result};

use super::offline::read_offlined;
use super::row::read_row;
use super::table::{Head, named};
use crate::error::Cause;
use crate::sql::{instant, read_name, read_number, statements};
use crate::step::{Answer, Step};

statements! { "roster.sql":
    FORGET = "forget",
    VERIFIED = "verified",
    REMOVED_PAGE = "removed_page",
    OFFLINED_PAGE = "offlined_page",
    DELETE = "delete",
    BRING_BACK = "bring_back",
    HAS_ROW = "has_row",
}

/// How many old removals one part forgets at most.
const FORGET_MOST: u32 = 1_000;

/// Where a part begins: after this name in one of the walks.
#[derive(Debug, Clone)]
pub(super) struct Place {
    walk: Walk,
    after: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Rows,
    Removed,
    Offlined,
    Memory,
}

impl Walk {
    const ALL: [Self; 4] = [Self::Rows, Self::Removed, Self::Offlined, Self::Memory];

    fn as_str(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Removed => "removed",
            Self::Offlined => "offlined",
            Self::Memory => "memory",
        }
    }

    fn next(self) -> Option<Self> {
        Self::ALL.into_iter().skip_while(|walk| *walk != self).nth(1)
    }
}

impl Place {
    /// Reads a cursor. By a foreign hand a name may be anything.
    pub(super) fn parse(cursor: Option<&str>) -> Result<Self> {
        let Some(text) = cursor else {
            return Ok(Self::start_of(Walk::Rows));
        };
        let place = || {
            let (walk, after) = text.split_once('/')?;
            let walk = Walk::ALL.into_iter().find(|known| known.as_str() == walk)?;
            let after = after.to_owned();
            Some(Self { walk, after })
        };
        place().ok_or_else(|| bad_cursor(text))
    }

    fn start_of(walk: Walk) -> Self {
        let after = String::new();
        Self { walk, after }
    }

    fn cursor(&self) -> String {
        format!("{}/{}", self.walk.as_str(), self.after)
    }
}

/// What a part has found so far.
#[derive(Default)]
struct Part {
    entries: Vec<Entry>,
    repaired: BTreeMap<&'static str, u64>,
}

impl Part {
    fn mended(&mut self, kind: &'static str) {
        *self.repaired.entry(kind).or_default() += 1;
    }
}

/// A row whatever is wrong with it, and whether the ledger knows or is to be told of the end of its tenure.
struct RowFound {
    name: String,
    row: Option<Provider>,
    told: bool,
}

/// A removal whatever is wrong with it.
struct RemovedFound {
    name: String,
    entry: Option<Entry>,
    has_row: bool,
}

impl Step<'_> {
    /// One part.
    pub(super) fn verify_roster(&mut self, place: Place, limit: u32) -> Answer<Verified> {
        let long_ago = self.now.minus(TOMBSTONES_KEPT);
        self.sql
            .prepare_cached(FORGET)?
            .execute(params![self.id, instant(long_ago), FORGET_MOST])?;
        let (mut left, mut part) = (limit, Part::default());
        let mut place = Some(place);
        while let (Some(here), 1..) = (&place, left) {
            let (looked_at, last) = match here.walk {
                Walk::Rows => self.verify_rows(&here.after, left, &mut part)?,
                Walk::Removed => self.verify_removed(&here.after, left, &mut part)?,
                Walk::Offlined => self.verify_offlined(&here.after, left, &mut part)?,
                Walk::Memory => self.verify_memory(&here.after, left, &mut part)?,
            };
            left -= looked_at.min(left);
            place = match last.filter(|_| left == 0) {
                Some(after) => Some(Place { after, ..*here }),
                None => here.walk.next().map(Place::start_of),
            };
        }
        Ok(Ok(Verified {
            entries: part.entries,
            repaired: part
                .repaired
                .into_iter()
                .map(|(kind, n)| (kind.to_owned(), n))
                .collect(),
            next: place.map(|place| place.cursor()),
            stamp: self.stamp(),
        }))
    }

    /// Rows: read, as memory has them, and pending if their tenure has ended.
    fn verify_rows(&mut self, after: &str, limit: u32, part: &mut Part) -> Result<(u32, Option<String>), Cause> {
        let found = self.page(VERIFIED, after, limit, |row| {
            Ok(RowFound {
                name: row.get(0)?,
                row: read_row(row).ok(),
                told: row.get(10).unwrap_or(false),
            })
        })?;
        let (count, last) = (found.len(), found.last().map(|found| found.name.clone()));
        for RowFound { name, row, told } in found {
            let Some(row) = row else {
                self.remove_broken(&name)?;
                part.mended(drift::BROKEN_PROVIDER);
                continue;
            };
            let head = Head::of(&row);
            if self.head_of(&row.provider).as_ref() != Some(&head) {
                self.undo.rewrite(&mut self.live.lock(), &row.provider, Some(head));
                self.meta.roster.changes += 1;
                part.mended(drift::PROVIDER_MISPLACED);
            }
            if let Some(tenure) = named(&row).filter(|_| !told)
                && !self.is_current(tenure)
                && self.record_of(tenure)?.is_some()
            {
                self.stand(tenure)?;
                part.mended(drift::OFFLINE_NOT_PENDING);
            }
            part.entries.push(Entry::Row(row));
        }
        Ok((as_u32(count), last))
    }

    /// Takes a row out that nobody can read. Until the ledger tells it again, the provider is missing.
    fn remove_broken(&mut self, name: &str) -> Result<(), Cause> {
        self.sql.prepare_cached(DELETE)?.execute(params![self.id, name])?;
        if let Ok(provider) = ProviderId::new(name) {
            self.undo.rewrite(&mut self.live.lock(), &provider, None);
        }
        self.meta.roster.changes += 1;
        Ok(())
    }

    /// What was removed: readable, and not there again.
    fn verify_removed(&mut self, after: &str, limit: u32, part: &mut Part) -> Result<(u32, Option<String>), Cause> {
        let found = self.page(REMOVED_PAGE, after, limit, |row| {
            Ok(RemovedFound {
                name: row.get(0)?,
                entry: read_removed(row).ok(),
                has_row: row.get(2)?,
            })
        })?;
        let (count, last) = (found.len(), found.last().map(|found| found.name.clone()));
        for RemovedFound { name, entry, has_row } in found {
            match entry.filter(|_| !has_row) {
                Some(entry) => part.entries.push(entry),
                None => {
                    self.sql.prepare_cached(BRING_BACK)?.execute(params![self.id, name])?;
                    part.mended(match has_row {
                        true => drift::PROVIDER_MISPLACED,
                        false => drift::BROKEN_PROVIDER,
                    });
                }
            }
        }
        Ok((as_u32(count), last))
    }

    /// Ended tenures that the ledger has to follow: each is named by the row of its provider, and over.
    fn verify_offlined(&mut self, after: &str, limit: u32, part: &mut Part) -> Result<(u32, Option<String>), Cause> {
        let found: Vec<(String, Option<Offlined>)> = self.page(OFFLINED_PAGE, after, limit, |row| {
            Ok((row.get(0)?, read_offlined(row).ok().map(|(_, offlined)| offlined)))
        })?;
        let (count, last) = (found.len(), found.last().map(|(text, _)| text.clone()));
        for (text, offlined) in found {
            let named = offlined.is_some_and(|offlined| {
                let head = self.head_of(&ProviderId::from(offlined.tenure.member()));
                let online = head.and_then(|head| head.online);
                online.as_ref() == Some(&offlined.tenure) && !self.is_current(&offlined.tenure)
            });
            if !named {
                self.strike_offline(&text)?;
                part.mended(drift::PENDING_WITHOUT_PROVIDER);
            }
        }
        Ok((as_u32(count), last))
    }

    /// What is in memory has a row.
    fn verify_memory(&mut self, after: &str, limit: u32, part: &mut Part) -> Result<(u32, Option<String>), Cause> {
        let after = ProviderId::new(after).ok();
        let names = self.live.lock().roster.names(after.as_ref(), limit as usize);
        let (count, last) = (names.len(), names.last().map(ToString::to_string));
        for provider in names {
            let mut has_row = self.sql.prepare_cached(HAS_ROW)?;
            if !has_row.exists(params![self.id, provider.as_str()])? {
                self.undo.rewrite(&mut self.live.lock(), &provider, None);
                self.meta.roster.changes += 1;
                part.mended(drift::INDEX_WITHOUT_PROVIDER);
            }
        }
        Ok((as_u32(count), last))
    }

    fn page<T>(
        &self,
        statement: &str,
        after: &str,
        limit: u32,
        read: impl Fn(&Row<'_>) -> Result<T, Cause>,
    ) -> Result<Vec<T>, Cause> {
        let mut select = self.sql.prepare_cached(statement)?;
        let mut rows = select.query(params![self.id, after, limit])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(read(row)?);
        }
        Ok(all)
    }
}

fn read_removed(row: &Row<'_>) -> Result<Entry, Cause> {
    Ok(Entry::Gone {
        provider: read_name(row, 0)?,
        version: Version(read_number(row, 1)?),
    })
}

fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
