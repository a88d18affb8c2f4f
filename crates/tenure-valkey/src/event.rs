//! Events: a stream whose ids are the event numbers, written by the scripts in the same step as the change.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery, WaitForEvents};
use tenure_core::id::{Alias, ConnectionId, Group, LeaseName, MemberId, SessionId};
use tenure_core::lease::{Place, RequestId, Token};
use tenure_core::session::Epoch;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

use crate::keys;
use crate::reply::{Read, Reader};
use crate::store::ValkeyStore;
use crate::view::{foreign, pause};

/// The polling interval of a waiting reader. A blocking read would need a connection of its own, and notifications can
/// be lost.
const POLL: Duration = Duration::from_millis(100);

#[async_trait]
impl Serve<EventQuery> for ValkeyStore {
    async fn serve(&self, group: &Group, query: EventQuery, _: Call) -> Result<EventPage> {
        if let Some(before) = query.before {
            let mut log = self.read_log(group, EntryRange::Before(before), query.limit).await?;
            let oldest = log
                .entries
                .last()
                .map_or(Ok(before), |entry| Ok(numbers_of(&entry.id)?.0))?;
            log.entries.reverse();
            return page(log.entries, oldest, false, &query);
        }
        let log = self
            .read_log(group, EntryRange::After(query.after), query.limit)
            .await?;
        let missed = query
            .after
            .is_some_and(|after| after < log.dropped || after > log.newest);
        let entries = match missed {
            // The requested events were trimmed: the page starts with the oldest event.
            true => {
                self.read_log(group, EntryRange::After(None), query.limit)
                    .await?
                    .entries
            }
            false => log.entries,
        };
        let last = match entries.last() {
            Some(entry) => numbers_of(&entry.id)?.0,
            None => query.after.filter(|_| !missed).unwrap_or(log.newest),
        };
        page(entries, last, missed, &query)
    }
}

#[async_trait]
impl Serve<WaitForEvents> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: WaitForEvents, _: Call) -> Result<()> {
        let clock = self.connection.clock();
        let until = clock.mono() + ask.patience;
        loop {
            let (mut cmd, meta) = (redis::cmd("HGET"), keys::meta(group));
            cmd.arg(&meta).arg("events");
            let value = self.connection.command_on(&meta, cmd).await?;
            let newest = Reader::new(redis::Value::Array(vec![value])).and_then(|mut reader| reader.maybe_number());
            // Also when the number is lower than before: the reader has missed events and must notice.
            if newest.map_err(foreign)?.unwrap_or(0) != ask.after.0 {
                return Ok(());
            }
            let left = until.since(clock.mono());
            if left.is_zero() {
                return Ok(());
            }
            pause(&**clock, left.min(POLL)).await;
        }
    }
}

/// The range of entries to read.
#[derive(Debug, Clone, Copy)]
enum EntryRange {
    /// The oldest entries after this one.
    After(Option<EventId>),
    /// The newest entries before this one, newest first.
    Before(EventId),
}

/// A part of the log.
struct LogPart {
    newest: EventId,
    /// The event before the oldest entry.
    dropped: EventId,
    entries: Vec<StreamEntry>,
}

/// An entry of the stream: its id and its fields, as stored.
struct StreamEntry {
    id: String,
    fields: BTreeMap<String, String>,
}

impl ValkeyStore {
    async fn read_log(&self, group: &Group, range: EntryRange, limit: u32) -> Result<LogPart> {
        // An id without its second part means the first entry of its number, or the last one at the end of a range.
        let (direction, first) = match range {
            EntryRange::After(None) => ("after", "-".to_owned()),
            EntryRange::After(Some(after)) => ("after", after.0.saturating_add(1).to_string()),
            EntryRange::Before(before) => ("before", before.0.saturating_sub(1).to_string()),
        };
        let invocation = Self::read_call(group)
            .arg(direction)
            .arg(first)
            .number(u64::from(limit));
        let (newest, oldest, entries) = self
            .connection
            .call(&self.scripts.events, invocation, |reader, _| {
                Ok((
                    EventId(reader.maybe_number()?.unwrap_or(0)),
                    reader.maybe_text()?,
                    read_entries(reader)?,
                ))
            })
            .await?;
        let oldest = oldest.map(|id| numbers_of(&id)).transpose()?;
        Ok(LogPart {
            newest,
            dropped: oldest.map_or(newest, |(_, before)| before),
            entries,
        })
    }
}

/// The events of these entries that match the query.
fn page(entries: Vec<StreamEntry>, last: EventId, missed: bool, query: &EventQuery) -> Result<EventPage> {
    let mut events = Vec::new();
    for entry in entries {
        let (id, kind) = entry.id_and_kind()?;
        if let Some(kind) = kind
            && (query.kinds.is_empty() || query.kinds.contains(&kind))
        {
            events.push(entry.event(id, kind)?);
        }
    }
    Ok(EventPage { events, last, missed })
}

fn read_entries(reader: &mut Reader) -> Read<Vec<StreamEntry>> {
    let mut rows = reader.array()?;
    let mut entries = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let (id, mut pairs, mut fields) = (row.text()?, row.array()?, BTreeMap::new());
        while pairs.left() > 1 {
            fields.insert(pairs.text()?, pairs.text()?);
        }
        entries.push(StreamEntry { id, fields });
    }
    Ok(entries)
}

/// The number of an entry and of the event before it: an id is `<number>-<difference to the number before>`. Earlier
/// versions used consecutive numbers and wrote 0 there.
fn numbers_of(id: &str) -> Result<(EventId, EventId)> {
    let parts = id.split_once('-');
    let numbers = parts.and_then(|(number, step)| Some((number.parse::<u64>().ok()?, step.parse::<u64>().ok()?)));
    let (number, step) = numbers.ok_or_else(|| foreign("an event's id that is not ours"))?;
    Ok((EventId(number), EventId(number.saturating_sub(step.max(1)))))
}

impl StreamEntry {
    /// The number, and the kind unless a newer version wrote an unknown one.
    fn id_and_kind(&self) -> Result<(EventId, Option<EventKind>)> {
        let kind = self
            .fields
            .get("kind")
            .ok_or_else(|| foreign("an event without a kind"))?;
        Ok((numbers_of(&self.id)?.0, EventKind::parse(kind).ok()))
    }

    fn parsed<T>(&self, field: &str, parse: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
        self.fields.get(field).map(|text| parse(text)).transpose()
    }

    fn event(mut self, id: EventId, kind: EventKind) -> Result<Event> {
        let at = self
            .fields
            .get("at")
            .and_then(|at| at.parse().ok())
            .ok_or_else(|| foreign("an event without a time"))?;
        let mut event = Event::new(id, StoreTime::from_micros(at), kind);
        event.tenure = self.parsed("tenure", |text| text.parse().map_err(foreign))?;
        event.reason = self.fields.remove("reason");
        event.lease = self.parsed("lease", |text| LeaseName::new(text).map_err(foreign))?;
        event.token = self.parsed("token", |text| {
            let number = text.parse().map_err(foreign)?;
            Token::new(number).map_err(foreign)
        })?;
        event.place = self.parsed("place", |text| {
            let number = text.parse().map_err(foreign)?;
            Place::new(number).map_err(foreign)
        })?;
        event.request = self.parsed("request", |text| {
            let number = text.parse().map_err(foreign)?;
            RequestId::new(number).map_err(foreign)
        })?;
        event.from = self.parsed("from", |text| text.parse().map_err(foreign))?;
        event.to = self.parsed("to", |text| MemberId::new(text).map_err(foreign))?;
        event.session = self.parsed("session", |text| SessionId::new(text).map_err(foreign))?;
        event.connection = self.parsed("connection", |text| ConnectionId::new(text).map_err(foreign))?;
        event.alias = self.parsed("alias", |text| Alias::new(text).map_err(foreign))?;
        event.epoch = self.parsed("epoch", |text| {
            let number = text.parse().map_err(foreign)?;
            Epoch::new(number).map_err(foreign)
        })?;
        event.pass = self.fields.remove("pass");
        event.connections = self
            .parsed("connections", |text| text.parse().map_err(foreign))?
            .unwrap_or(0);
        for count in self.fields.get("counts").map_or("", String::as_str).split_whitespace() {
            let (name, number) = count
                .split_once('=')
                .ok_or_else(|| foreign("a count without a number"))?;
            event.counts.insert(name.to_owned(), number.parse().map_err(foreign)?);
        }
        event.keys = self
            .fields
            .get("keys")
            .map_or("", String::as_str)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        event.keys.sort();
        Ok(event)
    }
}
