//! What happened: events are written with the rows of the change, and read from snapshots.
//!
//! The oldest events are deleted in small batches, once there are a few more than `events_max`, or more bytes than
//! `events_bytes`.

use rusqlite::{Connection, OptionalExtension, Row, Rows, params};
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
use tenure_core::store::StoreOptions;
use tenure_core::{Error, Group, StoreTime};

use crate::error::Cause;
use crate::sql::{
    instant, number, read_epoch, read_instant, read_name_or_none, read_number, read_place, read_request_or_none,
    read_token_or_none, statements,
};

statements! { "event.sql":
    INSERT = "insert",
    SIZES = "sizes",
    TRIM = "trim",
    PAGE = "page",
    PAGE_BEFORE = "page_before",
}
statements! { "group.sql":
    LOG = "log",
}

/// How many events there may be above the setting before some are deleted: at most this many, and this part of a short log.
/// When the bytes are too many, this part of them is deleted.
const TRIM_SLACK: (u64, u64) = (256, 64);
/// The most rows deleted in one commit, beside as many as it adds: for when the log was made shorter.
const TRIM_MOST: usize = 2_048;

/// How long the log of a group is in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSize {
    /// No event below this number is kept: one above the newest that was deleted.
    pub(crate) oldest: u64,
    number: u64,
    /// About how many bytes they take.
    bytes: u64,
}

impl LogSize {
    /// Of a group that has no event below this number.
    pub(crate) fn empty(oldest: u64) -> Self {
        Self {
            oldest,
            number: 0,
            bytes: 0,
        }
    }

    /// Counts all events of a group from this number on.
    pub(crate) fn count(sql: &Connection, id: i64, oldest: u64) -> Result<Self, Cause> {
        let mut sizes = sql.prepare_cached(SIZES)?;
        let mut rows = sizes.query(params![id, number(oldest), -1])?;
        let mut size = Self::empty(oldest);
        while let Some(row) = rows.next()? {
            size.number += 1;
            size.bytes += read_number(row, 1)?;
        }
        Ok(size)
    }

    /// Appends events, and deletes the oldest ones if there are too many or they are too long together.
    pub(crate) fn append(
        &mut self,
        sql: &Connection,
        id: i64,
        events: &[Event],
        options: &StoreOptions,
    ) -> Result<(), Cause> {
        if events.is_empty() {
            return Ok(());
        }
        for event in events {
            insert(sql, id, event)?;
        }
        if let Some(first) = events.first() {
            let added = Self::count(sql, id, first.id.0)?;
            self.number += added.number;
            self.bytes += added.bytes;
        }
        self.trim(sql, id, events.len(), options)
    }

    fn trim(&mut self, sql: &Connection, id: i64, added: usize, options: &StoreOptions) -> Result<(), Cause> {
        let (most, most_bytes) = (options.events_max.max(1), options.events_bytes);
        let (slack, slack_bytes) = (TRIM_SLACK.0.min(most / TRIM_SLACK.1), most_bytes / TRIM_SLACK.1);
        if self.number <= most + slack && self.bytes <= most_bytes {
            return Ok(());
        }
        let mut sizes = sql.prepare_cached(SIZES)?;
        let at_most = i64::try_from(TRIM_MOST + added).unwrap_or(i64::MAX);
        let mut rows = sizes.query(params![id, number(self.oldest), at_most])?;
        while self.number > 1 && (self.number > most || self.bytes > most_bytes - slack_bytes) {
            let Some(row) = rows.next()? else { break };
            self.oldest = read_number(row, 0)? + 1;
            self.number -= 1;
            self.bytes = self.bytes.saturating_sub(read_number(row, 1)?);
        }
        drop(rows);
        sql.prepare_cached(TRIM)?.execute(params![id, number(self.oldest)])?;
        Ok(())
    }
}

fn insert(sql: &Connection, id: i64, event: &Event) -> Result<(), Cause> {
    let counts = (!event.counts.is_empty()).then(|| json(&event.counts)).transpose()?;
    let keys = (!event.keys.is_empty()).then(|| json(&event.keys)).transpose()?;
    sql.prepare_cached(INSERT)?.execute(params![
        id,
        number(event.id.0),
        instant(event.at),
        event.kind.as_str(),
        event.tenure.as_ref().map(ToString::to_string),
        event.reason,
        event.lease.as_ref().map(|lease| lease.as_str()),
        event.token.map(|token| number(token.get())),
        event.from.as_ref().map(ToString::to_string),
        event.to.as_ref().map(|member| member.as_str()),
        event.session.as_ref().map(|session| session.as_str()),
        event.connection.as_ref().map(|connection| connection.as_str()),
        event.alias.as_ref().map(|alias| alias.as_str()),
        event.epoch.map(|epoch| number(epoch.get())),
        event.pass,
        counts,
        (event.connections > 0).then(|| number(event.connections)),
        keys,
        event.place.map(|place| place.get()),
        event.request.map(|request| number(request.get())),
    ])?;
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Result<String, Cause> {
    serde_json::to_string(value).map_err(|error| Cause::Strange(error.to_string()))
}

fn read_event(row: &Row<'_>) -> Result<Event, Cause> {
    let strange = |error: serde_json::Error| Cause::Strange(error.to_string());
    let kind: String = row.get(2)?;
    let kind = EventKind::parse(&kind).map_err(|error: Error| Cause::Strange(error.to_string()))?;
    let at: StoreTime = read_instant(row, 1)?;
    let mut event = Event::new(EventId(read_number(row, 0)?), at, kind);
    event.tenure = read_name_or_none(row, 3)?;
    event.reason = row.get(4)?;
    event.lease = read_name_or_none(row, 5)?;
    event.token = read_token_or_none(row, 6)?;
    event.from = read_name_or_none(row, 7)?;
    event.to = read_name_or_none(row, 8)?;
    event.session = read_name_or_none(row, 9)?;
    event.connection = read_name_or_none(row, 10)?;
    event.alias = read_name_or_none(row, 11)?;
    event.epoch = match row.get_ref(12)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(read_epoch(row, 12)?),
    };
    event.pass = row.get(13)?;
    if let Some(counts) = row.get::<_, Option<String>>(14)? {
        event.counts = serde_json::from_str(&counts).map_err(strange)?;
    }
    event.connections = read_number(row, 15)?;
    if let Some(keys) = row.get::<_, Option<String>>(16)? {
        event.keys = serde_json::from_str(&keys).map_err(strange)?;
    }
    event.place = match row.get_ref(17)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(read_place(row, 17)?),
    };
    event.request = read_request_or_none(row, 18)?;
    Ok(event)
}

/// Reads a page from one snapshot.
pub(crate) fn page(sql: &Connection, group: &Group, query: &EventQuery) -> Result<EventPage, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let log = snapshot
        .prepare_cached(LOG)?
        .query_row([group.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, read_number(row, 1)?, read_number(row, 2)?))
        })
        .optional()?;
    // A group that was removed since has none.
    let (id, last, oldest) = log.unwrap_or((0, 0, 1));
    if let Some(before) = query.before {
        let mut select = snapshot.prepare_cached(PAGE_BEFORE)?;
        let rows = select.query(params![id, number(oldest), query.limit, number(before.0)])?;
        let mut page = read_page(rows, before, query)?;
        page.events.reverse();
        return Ok(page);
    }
    let missed = query
        .after
        .is_some_and(|after| after.0.saturating_add(1) < oldest || after.0 > last);
    let after = query.after.filter(|_| !missed);
    let from = after.map_or(oldest, |after| after.0 + 1);
    let mut select = snapshot.prepare_cached(PAGE)?;
    let rows = select.query(params![id, number(from), query.limit])?;
    let page = read_page(rows, after.unwrap_or(EventId(last)), query)?;
    Ok(EventPage { missed, ..page })
}

/// The requested events, in the order of the rows; without rows, reading continues at `last`.
fn read_page(mut rows: Rows<'_>, last: EventId, query: &EventQuery) -> Result<EventPage, Cause> {
    let mut page = EventPage {
        last,
        ..EventPage::default()
    };
    while let Some(row) = rows.next()? {
        let event = read_event(row)?;
        page.last = event.id;
        if query.kinds.is_empty() || query.kinds.contains(&event.kind) {
            page.events.push(event);
        }
    }
    Ok(page)
}
