//! What happened: events are written in the transaction of the change, and read from snapshots.
//!
//! The oldest events are deleted in small batches, once there are a few more than `events_max`, or more bytes than
//! `events_bytes`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Row, Rows, params};
use tenure_core::call::Serve;
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery, WaitForEvents};
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::lease::Token;
use tenure_core::session::Epoch;
use tenure_core::store::Call;
use tenure_core::{Error, Group, LeaseName, MemberId, Result, StoreTime, TenureId};

use crate::error::Cause;
use crate::sql::{
    instant, number, read_epoch, read_instant, read_name_or_none, read_number, read_token_or_none, statements,
};
use crate::step::Step;
use crate::store::SqliteStore;

statements! { "event.sql":
    INSERT = "insert",
    SIZES = "sizes",
    TRIM = "trim",
    PAGE = "page",
    PAGE_BEFORE = "page_before",
}
statements! { "group.sql":
    LAST_EVENT = "last_event",
}

/// How many events there may be above the setting before some are deleted: at most this many, and this part of a short log.
/// When the bytes are too many, this part of them is deleted.
const TRIM_SLACK: (u64, u64) = (256, 64);
/// The most rows deleted in one step, for when the log was made shorter.
const TRIM_MOST: i64 = 2_048;

/// An event before it has a number.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    kind: EventKind,
    tenure: Option<&'a TenureId>,
    reason: Option<&'a str>,
    lease: Option<&'a LeaseName>,
    token: Option<Token>,
    from: Option<&'a TenureId>,
    to: Option<&'a MemberId>,
    session: Option<&'a SessionId>,
    connection: Option<&'a ConnectionId>,
    alias: Option<&'a Alias>,
    epoch: Option<Epoch>,
    pass: Option<&'a str>,
    counts: BTreeMap<&'a str, u64>,
    connections: u64,
    keys: &'a [String],
}

impl<'a> Draft<'a> {
    pub(crate) fn new(kind: EventKind) -> Self {
        Self {
            kind,
            tenure: None,
            reason: None,
            lease: None,
            token: None,
            from: None,
            to: None,
            session: None,
            connection: None,
            alias: None,
            epoch: None,
            pass: None,
            counts: BTreeMap::new(),
            connections: 0,
            keys: &[],
        }
    }

    pub(crate) fn of(mut self, tenure: &'a TenureId) -> Self {
        self.tenure = Some(tenure);
        self
    }

    pub(crate) fn because(mut self, reason: &'a str) -> Self {
        self.reason = Some(reason);
        self
    }

    pub(crate) fn lease(mut self, lease: &'a LeaseName) -> Self {
        self.lease = Some(lease);
        self
    }

    pub(crate) fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    pub(crate) fn from(mut self, from: &'a TenureId) -> Self {
        self.from = Some(from);
        self
    }

    pub(crate) fn to(mut self, to: &'a MemberId) -> Self {
        self.to = Some(to);
        self
    }

    /// About a session, as of this attach.
    pub(crate) fn session(mut self, session: &'a SessionId, epoch: Option<Epoch>, alias: Option<&'a Alias>) -> Self {
        (self.session, self.epoch, self.alias) = (Some(session), epoch, alias);
        self
    }

    pub(crate) fn connection(mut self, connection: &'a ConnectionId) -> Self {
        self.connection = Some(connection);
        self
    }

    pub(crate) fn connections(mut self, number: u64) -> Self {
        self.connections = number;
        self
    }

    pub(crate) fn in_pass(mut self, pass: &'a str) -> Self {
        self.pass = Some(pass);
        self
    }

    pub(crate) fn keys(mut self, keys: &'a [String]) -> Self {
        self.keys = keys;
        self
    }

    pub(crate) fn count(&mut self, what: &'a str, number: u64) {
        self.counts.insert(what, number);
    }
}

impl Step<'_> {
    /// Appends an event and trims the log.
    pub(crate) fn emit(&mut self, event: Draft<'_>) -> Result<(), Cause> {
        self.meta.last_event = (self.meta.last_event + 1).max(self.now.micros());
        let counts = (!event.counts.is_empty()).then(|| json(&event.counts)).transpose()?;
        let keys = (!event.keys.is_empty()).then(|| json(&event.keys)).transpose()?;
        self.sql.prepare_cached(INSERT)?.execute(params![
            self.id,
            number(self.meta.last_event),
            instant(self.now),
            event.kind.as_str(),
            event.tenure.map(TenureId::to_string),
            event.reason,
            event.lease.map(LeaseName::as_str),
            event.token.map(|token| number(token.get())),
            event.from.map(TenureId::to_string),
            event.to.map(MemberId::as_str),
            event.session.map(SessionId::as_str),
            event.connection.map(ConnectionId::as_str),
            event.alias.map(Alias::as_str),
            event.epoch.map(|epoch| number(epoch.get())),
            event.pass,
            counts,
            (event.connections > 0).then(|| number(event.connections)),
            keys,
        ])?;
        let own = Size::of(self.sql, self.id, self.meta.last_event)?;
        self.meta.events.number += own.number;
        self.meta.events.bytes += own.bytes;
        self.trim()
    }

    /// Deletes the oldest events, if there are too many or they are too long together.
    fn trim(&mut self) -> Result<(), Cause> {
        let (most, most_bytes) = (self.options.events_max.max(1), self.options.events_bytes);
        let (slack, slack_bytes) = (TRIM_SLACK.0.min(most / TRIM_SLACK.1), most_bytes / TRIM_SLACK.1);
        let kept = &mut self.meta.events;
        if kept.number <= most + slack && kept.bytes <= most_bytes {
            return Ok(());
        }
        let mut sizes = self.sql.prepare_cached(SIZES)?;
        let mut rows = sizes.query(params![self.id, number(self.meta.oldest_event), TRIM_MOST])?;
        while kept.number > 1 && (kept.number > most || kept.bytes > most_bytes - slack_bytes) {
            let Some(row) = rows.next()? else { break };
            self.meta.oldest_event = read_number(row, 0)? + 1;
            kept.number -= 1;
            kept.bytes = kept.bytes.saturating_sub(read_number(row, 1)?);
        }
        drop(rows);
        self.sql
            .prepare_cached(TRIM)?
            .execute(params![self.id, number(self.meta.oldest_event)])?;
        Ok(())
    }
}

/// How many events there are, and how many bytes about they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    number: u64,
    bytes: u64,
}

impl Size {
    /// Of all events of a group from this number on.
    pub(crate) fn of(sql: &rusqlite::Connection, id: i64, oldest: u64) -> Result<Self, Cause> {
        let mut sizes = sql.prepare_cached(SIZES)?;
        let mut rows = sizes.query(params![id, number(oldest), -1])?;
        let mut size = Self::default();
        while let Some(row) = rows.next()? {
            size.number += 1;
            size.bytes += read_number(row, 1)?;
        }
        Ok(size)
    }
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
    Ok(event)
}

/// Reads a page from one snapshot.
fn page(sql: &rusqlite::Connection, id: i64, query: &EventQuery) -> Result<EventPage, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let bounds = snapshot
        .prepare_cached(LAST_EVENT)?
        .query_row([id], |row| Ok((read_number(row, 0)?, read_number(row, 1)?)))
        .optional()?;
    // A group whose first transaction is not committed has no row yet.
    let (last, oldest) = bounds.unwrap_or((0, 1));
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

/// The events that were asked for, in the order of the rows; `last` is where to read on when there are no rows.
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

#[async_trait]
impl Serve<EventQuery> for SqliteStore {
    async fn serve(&self, group: &Group, query: EventQuery, _: Call) -> Result<EventPage> {
        let Some(live) = self.live(group)? else {
            return Ok(EventPage {
                missed: query.after.is_some_and(|after| after.0 > 0),
                last: query.before.unwrap_or_default(),
                ..EventPage::default()
            });
        };
        self.read(move |sql| page(sql, live.id, &query)).await
    }
}

#[async_trait]
impl Serve<WaitForEvents> for SqliteStore {
    async fn serve(&self, group: &Group, ask: WaitForEvents, _: Call) -> Result<()> {
        let over = self.clock().local().sleep(ask.patience);
        let waiting = async {
            let mut births = self.births();
            let live = loop {
                match self.live(group)? {
                    Some(live) => break live,
                    None if births.changed().await.is_err() => return Ok(()),
                    None => {}
                }
            };
            let mut news = live.news.subscribe();
            let seen = ask.after.0;
            while self.live(group)?.is_some() && *news.borrow_and_update() <= seen && news.changed().await.is_ok() {}
            Ok(())
        };
        tokio::select! { done = waiting => done, () = over => Ok(()) }
    }
}
