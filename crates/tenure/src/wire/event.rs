//! Events on the wire.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tenure_core::error::{Error, Result};
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
use tenure_core::id::{MemberId, TenureId, Term};
use tenure_core::store::DEFAULT_PAGE;

/// Query of the event routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct EventsQuery {
    /// Only events after this one (the `next` of the previous page). When absent or 0: from the oldest event kept.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<u64>,
    /// Only the newest events before this one. To page backwards, pass `next` of that page as `before`; it stays the
    /// same when there are no older events. Not with `after`, `wait_ms` or streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<u64>,
    /// Only these types, comma-separated.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub types: Option<String>,
    /// Page size, 1 to 1,000; default 100. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
    /// Long polling: if there is no event yet, wait this long for one, at most 30,000. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub wait_ms: Option<u64>,
}

impl EventsQuery {
    /// Converts to a store query.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, an unknown type, a wait above 30 s, or `before` together with `after` or
    /// a wait.
    pub fn request(&self) -> Result<EventQuery> {
        let longest = super::ms(super::MAX_EVENT_WAIT);
        if let Some(wait) = self.wait_ms.filter(|wait| *wait > longest) {
            return Err(Error::invalid(format!("the wait_ms {wait} is above {longest}")));
        }
        let largest = Term::MAX;
        if let Some(above) = [self.after, self.before].into_iter().flatten().find(|id| *id > largest) {
            return Err(Error::invalid(format!(
                "the event number {above} is above the maximum {largest}"
            )));
        }
        if self.before.is_some() && self.wait_ms.is_some() {
            return Err(Error::invalid(
                "before and wait_ms cannot be combined: no new event appears before another; omit one",
            ));
        }
        let kinds: Result<Vec<_>> = self
            .types
            .iter()
            .flat_map(|types| types.split(','))
            .map(EventKind::parse)
            .collect();
        let query = EventQuery {
            // An unused group is at 0. A reader waiting for its first event has missed nothing.
            after: self.after.filter(|after| *after != 0).map(EventId),
            before: self.before.map(EventId),
            limit: self.limit.unwrap_or(DEFAULT_PAGE),
            kinds: kinds?,
        };
        query.check().map(|()| query)
    }
}

/// An event, with the members of the tenures that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventAnswer {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// The member of `tenure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub member: Option<MemberId>,
    /// The member of `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from_member: Option<MemberId>,
}

impl From<Event> for EventAnswer {
    fn from(event: Event) -> Self {
        let member = |tenure: &TenureId| tenure.member().clone();
        Self {
            member: event.tenure.as_ref().map(member),
            from_member: event.from.as_ref().map(member),
            event,
        }
    }
}

/// Events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsPage {
    /// The events. A client skips events of unknown types when parsing, because a daemon may be newer than its clients.
    #[serde(deserialize_with = "known")]
    pub events: Vec<EventAnswer>,
    /// The cursor: pass it as `after` to continue, or as `before` when paging backwards. Always present, because the
    /// log has no end.
    pub next: String,
    /// Whether events after the requested one are missing (trimmed, or lost with the store's data).
    pub missed: bool,
}

/// Skips events of unknown types. Otherwise one event of a later version would block a reader forever.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<EventAnswer>, D::Error> {
    let all = Vec::<Value>::deserialize(deserializer)?;
    let is_known = |event: &Value| {
        let name = event.get("type").and_then(Value::as_str);
        name.is_none_or(|name| EventKind::parse(name).is_ok())
    };
    let events = all.into_iter().filter(is_known).map(Event::deserialize);
    let events = events.map(|event| event.map(EventAnswer::from));
    events.collect::<std::result::Result<_, _>>().map_err(D::Error::custom)
}

impl From<EventPage> for EventsPage {
    fn from(page: EventPage) -> Self {
        Self {
            events: page.events.into_iter().map(EventAnswer::from).collect(),
            next: page.last.to_string(),
            missed: page.missed,
        }
    }
}

impl EventsPage {
    /// Converts to the core type.
    ///
    /// # Errors
    /// `Internal` if `next` is not an event number.
    pub fn page(self) -> Result<EventPage> {
        let last = self.next.parse().map_err(|_| {
            Error::new(
                tenure_core::ErrorKind::Internal,
                format!(
                    "the daemon's next event {:?} is not a number",
                    super::shorten(&self.next)
                ),
            )
        })?;
        Ok(EventPage {
            events: self.events.into_iter().map(|answer| answer.event).collect(),
            last: EventId(last),
            missed: self.missed,
        })
    }
}

/// The data of a `gap` event in a stream: events are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The last event before the missing ones.
    pub after: u64,
    /// The stream continues after this event.
    pub resumes_after: u64,
}
