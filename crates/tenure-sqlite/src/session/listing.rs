//! Looking sessions up: rows from a snapshot, liveness of their connections from the live table.

use async_trait::async_trait;
use rusqlite::{Connection, params};
use tenure_core::Result;
use tenure_core::call::Serve;
use tenure_core::id::{Group, TenureId};
use tenure_core::session::{
    CountSessions, ListOrphans, Orphan, Orphans, Session, SessionByAlias, SessionOf, SessionState, SessionStats,
    Sessions,
};
use tenure_core::store::{Call, Page, PageRequest, bad_cursor};

use crate::error::Cause;
use crate::live::Live;
use crate::page::{Listing, cursor, cut, place};
use crate::sql::{instant, number, read_number, statements};
use crate::store::SqliteStore;

use super::reaper::due_by;
use super::record::{Record, record, record_by};

statements! { "session.sql":
    BY_ALIAS = "by_alias",
    PAGE = "page",
    ACTIVE_PAGE = "active_page",
    AWAY_PAGE = "away_page",
    COUNT_DUE = "count_due",
}

/// Where a page begins.
enum After {
    /// After this name, among all or those with connections.
    Name(String),
    /// After this place in the index of those without.
    Due(u64, String),
}

/// A row of a page: its cursor, and the session unless a foreign hand has spoilt it.
type Listed = (String, Option<Record>);

impl SqliteStore {
    /// Joins rows with the live table.
    fn sessions_seen(&self, live: &Live, records: impl Iterator<Item = Record>) -> Vec<Session> {
        live.look(self.clock(), |table, now| {
            let resumed_at = table.resumed_for_reading(now);
            let alive = |tenure: &TenureId| {
                let entry = table.seen(tenure);
                entry.is_some_and(|entry| now < entry.end(resumed_at, now))
            };
            records.map(|record| record.seen(alive, resumed_at, now)).collect()
        })
    }
}

#[async_trait]
impl Serve<SessionOf> for SqliteStore {
    async fn serve(&self, group: &Group, ask: SessionOf, _: Call) -> Result<Option<Session>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        let id = live.id;
        let read = move |sql: &Connection| record(&*sql.unchecked_transaction()?, id, ask.session.as_str());
        let found = self.read(read).await?;
        Ok(self.sessions_seen(&live, found.into_iter()).pop())
    }
}

#[async_trait]
impl Serve<SessionByAlias> for SqliteStore {
    async fn serve(&self, group: &Group, ask: SessionByAlias, _: Call) -> Result<Option<Session>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        let id = live.id;
        let read = move |sql: &Connection| record_by(&*sql.unchecked_transaction()?, BY_ALIAS, id, ask.alias.as_str());
        let found = self.read(read).await?;
        Ok(self.sessions_seen(&live, found.into_iter()).pop())
    }
}

#[async_trait]
impl Serve<Sessions> for SqliteStore {
    /// By name, or those without connections by when to look at them.
    async fn serve(&self, group: &Group, ask: Sessions, _: Call) -> Result<Page<Session>> {
        let Sessions { state, page } = ask;
        let after = after_of(state, &page)?;
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let (id, limit) = (live.id, page.limit);
        let read = move |sql: &Connection| listed_after(sql, id, state, &after, limit);
        let page = self.read(read).await?;
        let records = page.items.into_iter().filter_map(|(_, record)| record);
        let mut items = self.sessions_seen(&live, records);
        items.retain(|seen| state.is_none_or(|state| seen.state == state));
        Ok(Page { items, next: page.next })
    }
}

#[async_trait]
impl Serve<ListOrphans> for SqliteStore {
    /// From the index.
    async fn serve(&self, group: &Group, ask: ListOrphans, _: Call) -> Result<Orphans> {
        let ListOrphans { overdue, limit } = ask;
        let Some(live) = self.live(group)? else {
            return Ok(Orphans::default());
        };
        let (id, until) = (live.id, self.clock().now().minus(overdue));
        let due = self.read(move |sql| due_by(sql, id, until, limit)).await?;
        let mut orphans = Orphans::default();
        live.look(self.clock(), |table, now| {
            let resumed_at = table.resumed_for_reading(now);
            for entry in due {
                let Some(found) = entry.found else {
                    orphans.skipped += 1;
                    continue;
                };
                let over_at = found.away.over_at(resumed_at, now);
                if over_at + overdue <= now {
                    orphans.orphans.push(Orphan {
                        session: found.session,
                        epoch: found.epoch,
                        disconnected_at: found.away.reap_at.minus(found.away.granted),
                        overdue: now.since(over_at),
                    });
                }
            }
        });
        Ok(orphans)
    }
}

#[async_trait]
impl Serve<CountSessions> for SqliteStore {
    /// Counts the orphans one by one.
    async fn serve(&self, group: &Group, _: CountSessions, _: Call) -> Result<SessionStats> {
        let Some(live) = self.live(group)? else {
            return Ok(SessionStats::default());
        };
        let (meta, until) = live.look(self.clock(), |table, now| {
            // After a gap that nobody has noticed yet, everyone has the whole grace anew.
            (table.meta, table.observe(now).is_none().then_some(now))
        });
        let due = match until.filter(|_| meta.disconnected > 0) {
            Some(until) => self.read(move |sql| count_due(sql, live.id, instant(until))).await?,
            None => 0,
        };
        let orphans = due.min(meta.disconnected);
        Ok(SessionStats {
            active: meta.sessions.saturating_sub(meta.disconnected),
            disconnected: meta.disconnected - orphans,
            orphans,
        })
    }
}

fn count_due(sql: &Connection, id: i64, until: i64) -> Result<u64, Cause> {
    let mut count = sql.prepare_cached(COUNT_DUE)?;
    Ok(count.query_row(params![id, until], |row| read_number(row, 0))?)
}

fn after_of(state: Option<SessionState>, page: &PageRequest) -> Result<After> {
    let text = page.after.as_deref();
    let bad = || bad_cursor(text.unwrap_or_default());
    if matches!(state, None | Some(SessionState::Active)) {
        let name = text.map_or(Some(""), |text| place(Listing::Sessions, text));
        return name.map(|name| After::Name(name.to_owned())).ok_or_else(bad);
    }
    let Some(text) = text else {
        return Ok(After::Due(0, String::new()));
    };
    let (due, name) = place(Listing::Away, text)
        .and_then(|place| place.split_once('/'))
        .ok_or_else(bad)?;
    Ok(After::Due(due.parse().map_err(|_| bad())?, name.to_owned()))
}

/// Reads a page from one snapshot.
fn listed_after(
    sql: &Connection,
    id: i64,
    state: Option<SessionState>,
    after: &After,
    limit: u32,
) -> Result<Page<Listed>, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let listed = match after {
        After::Name(name) => {
            let select = if state.is_none() { PAGE } else { ACTIVE_PAGE };
            rows_of(&snapshot, select, params![id, name, limit + 1], Listing::Sessions)?
        }
        After::Due(due, name) => {
            let parameters = params![id, number(*due), name, limit + 1];
            rows_of(&snapshot, AWAY_PAGE, parameters, Listing::Away)?
        }
    };
    let mut page = cut(listed, limit, |(place, _)| place.clone());
    for (_, record) in &mut page.items {
        if let Some(record) = record {
            record.fill_in(&snapshot, id)?;
        }
    }
    Ok(page)
}

fn rows_of(
    sql: &Connection,
    select: &str,
    parameters: impl rusqlite::Params,
    listing: Listing,
) -> Result<Vec<Listed>, Cause> {
    let mut select = sql.prepare_cached(select)?;
    let mut rows = select.query(parameters)?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let place = match listing {
            Listing::Away => cursor(listing, &format!("{}/{name}", row.get::<_, i64>(8)?)),
            _ => cursor(listing, &name),
        };
        let record = Record::read(row);
        if let Err(cause) = &record {
            tracing::warn!(session = name, %cause, "a session is left out of a listing; reconcile mends it");
        }
        listed.push((place, record.ok()));
    }
    Ok(listed)
}
