//! Events on the wire.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tenure_core::error::{Error, Result};
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
use tenure_core::id::Term;
use tenure_core::store::DEFAULT_PAGE;

/// Which events to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct EventsQuery {
    /// Only events after this one (the `next` of the page before); from the oldest that is kept when not given, or 0.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<u64>,
    /// Only events before this one: the newest of them. The `next` of that page as `before` reads the older ones; it is
    /// the same again when there are none. Not together with `after`, with `wait_ms`, or for streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<u64>,
    /// Only these types, separated by commas.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub types: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
    /// When there is nothing yet: wait this long for something to happen, at most 30,000. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub wait_ms: Option<u64>,
}

impl EventsQuery {
    /// What it asks a store for.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, a type that does not exist, a wait above 30 s, or `before` together with
    /// `after` or a wait.
    pub fn request(&self) -> Result<EventQuery> {
        let longest = super::ms(super::MAX_EVENT_WAIT);
        if let Some(wait) = self.wait_ms.filter(|wait| *wait > longest) {
            return Err(Error::invalid(format!("the wait_ms {wait} is above {longest}")));
        }
        let largest = Term::MAX;
        if let Some(above) = [self.after, self.before].into_iter().flatten().find(|id| *id > largest) {
            return Err(Error::invalid(format!(
                "the event {above} is above {largest}: no event has that number"
            )));
        }
        if self.before.is_some() && self.wait_ms.is_some() {
            return Err(Error::invalid(
                "before and wait_ms are both given; there is no news before an event, so leave one out",
            ));
        }
        let kinds: Result<Vec<_>> = self
            .types
            .iter()
            .flat_map(|types| types.split(','))
            .map(EventKind::parse)
            .collect();
        let query = EventQuery {
            // A group that nobody used yet is at 0: whoever waits for its first event has missed nothing.
            after: self.after.filter(|after| *after != 0).map(EventId),
            before: self.before.map(EventId),
            limit: self.limit.unwrap_or(DEFAULT_PAGE),
            kinds: kinds?,
        };
        query.check().map(|()| query)
    }
}

/// Events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsPage {
    /// The events. Those of a type that this version does not know are passed over when they are read: a daemon may be newer
    /// than its clients.
    #[serde(deserialize_with = "known")]
    pub events: Vec<Event>,
    /// Pass it as `after` to read on; as `before`, after a page that was read backwards. Always there: events never end.
    pub next: String,
    /// Events after the asked one are gone (trimmed, or lost with the store's data).
    pub missed: bool,
}

/// Reads the events whose type is known. Without this a single event of a later version would hold a reader up for ever.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<Event>, D::Error> {
    let all = Vec::<Value>::deserialize(deserializer)?;
    let is_known = |event: &Value| {
        let name = event.get("type").and_then(Value::as_str);
        name.is_none_or(|name| EventKind::parse(name).is_ok())
    };
    let events = all.into_iter().filter(is_known).map(Event::deserialize);
    events.collect::<std::result::Result<_, _>>().map_err(D::Error::custom)
}

impl From<EventPage> for EventsPage {
    fn from(page: EventPage) -> Self {
        Self {
            events: page.events,
            next: page.last.to_string(),
            missed: page.missed,
        }
    }
}

impl EventsPage {
    /// What it means to a Rust caller.
    ///
    /// # Errors
    /// `Internal` when `next` is not the number of an event.
    pub fn page(self) -> Result<EventPage> {
        let last = self.next.parse().map_err(|_| {
            Error::new(
                tenure_core::ErrorKind::Internal,
                format!("the daemon's next event {:?} is no number", super::shorten(&self.next)),
            )
        })?;
        Ok(EventPage {
            events: self.events,
            last: EventId(last),
            missed: self.missed,
        })
    }
}

/// The data of a `gap` event in a stream: events are gone, the reader has missed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The event after which something is missing.
    pub after: u64,
    /// The stream goes on after this one.
    pub resumes_after: u64,
}
