//! Events: a stream with dense explicit ids, written by the scripts in the same step as the change.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventLog, EventPage, EventQuery};
use tenure_core::id::{Alias, ConnectionId, Group, LeaseName, MemberId, SessionId};
use tenure_core::lease::Token;
use tenure_core::session::Epoch;
use tenure_core::store::check_limit;
use tenure_core::time::StoreTime;

use crate::keys;
use crate::reply::{Read, Reader};
use crate::store::ValkeyStore;
use crate::view::{foreign, pause};

/// How often a waiting reader looks. Plain polling: a blocking read would need a connection of its own, and
/// notifications can be lost.
const POLL: Duration = Duration::from_millis(100);

#[async_trait]
impl EventLog for ValkeyStore {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        check_limit(query.limit)?;
        let after = query.after.map(|after| after.0);
        let log = self
            .read_log(group, after.map(|after| after.saturating_add(1)), query.limit)
            .await?;
        let missed = after.is_some_and(|after| after.saturating_add(1) < log.oldest || after > log.newest);
        let entries = match missed {
            // What was asked for is gone: the page begins with the oldest there is.
            true => self.read_log(group, None, query.limit).await?.entries,
            false => log.entries,
        };
        let mut page = EventPage {
            events: Vec::new(),
            last: EventId(after.filter(|_| !missed).unwrap_or(log.newest)),
            missed,
        };
        for entry in entries {
            let (id, kind) = entry.id_and_kind()?;
            page.last = id;
            if let Some(kind) = kind
                && (query.kinds.is_empty() || query.kinds.contains(&kind))
            {
                page.events.push(entry.event(id, kind)?);
            }
        }
        Ok(page)
    }

    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        let clock = self.connection.clock();
        let until = clock.mono() + patience;
        loop {
            let (mut cmd, meta) = (redis::cmd("HGET"), keys::meta(group));
            cmd.arg(&meta).arg("events");
            let value = self.connection.command_on(&meta, cmd).await?;
            let newest = Reader::new(redis::Value::Array(vec![value])).and_then(|mut reader| reader.maybe_number());
            // Also when there are fewer events than there were: the reader has missed something then, and has to know.
            if newest.map_err(foreign)?.unwrap_or(0) != after.0 {
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

/// A stretch of the log.
struct Log {
    newest: u64,
    oldest: u64,
    entries: Vec<Entry>,
}

/// An entry of the stream: its id and its fields, as stored.
struct Entry {
    id: String,
    fields: BTreeMap<String, String>,
}

impl ValkeyStore {
    async fn read_log(&self, group: &Group, from: Option<u64>, limit: u32) -> Result<Log> {
        let from = from.map_or_else(|| "-".to_owned(), |from| format!("{from}-0"));
        let invocation = Self::reading(group).arg(from).number(u64::from(limit));
        let (newest, oldest, entries) = self
            .connection
            .call(&self.scripts.events, invocation, |reader, _| {
                Ok((
                    reader.maybe_number()?.unwrap_or(0),
                    reader.maybe_text()?,
                    read_entries(reader)?,
                ))
            })
            .await?;
        let oldest = oldest
            .map(|id| number_of(&id))
            .transpose()?
            .map_or(newest + 1, |oldest| oldest.0);
        Ok(Log {
            newest,
            oldest,
            entries,
        })
    }
}

fn read_entries(reader: &mut Reader) -> Read<Vec<Entry>> {
    let mut rows = reader.array()?;
    let mut entries = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let (id, mut pairs, mut fields) = (row.text()?, row.array()?, BTreeMap::new());
        while pairs.left() > 1 {
            fields.insert(pairs.text()?, pairs.text()?);
        }
        entries.push(Entry { id, fields });
    }
    Ok(entries)
}

fn number_of(id: &str) -> Result<EventId> {
    let number = id.split_once('-').and_then(|(number, _)| number.parse().ok());
    number
        .map(EventId)
        .ok_or_else(|| foreign("an event's id that is not ours"))
}

impl Entry {
    /// The number, and the kind unless a newer version wrote one that this one does not know.
    fn id_and_kind(&self) -> Result<(EventId, Option<EventKind>)> {
        let kind = self
            .fields
            .get("kind")
            .ok_or_else(|| foreign("an event without a kind"))?;
        Ok((number_of(&self.id)?, EventKind::parse(kind).ok()))
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
