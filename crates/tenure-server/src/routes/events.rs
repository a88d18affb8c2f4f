//! Events as pages, long polls or a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tenure::wire::{EventAnswer, EventsPage, EventsQuery, Gap};
use tenure_core::clock::within;
use tenure_core::error::{Error, Result};
use tenure_core::event::{EventPage, EventQuery};
use tenure_core::id::Group;

use super::openapi::ReadErrors;
use super::stream::{self, Feed, PAGE};
use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::extract::{PathParams, Query};
use crate::middleware::overloaded;
use crate::reply::{Failure, RouteResult, json};
use crate::room::{Permit, Share};

/// Read events, or follow them
///
/// With `Accept: text/event-stream` the answer is an endless stream: each event has its number as `id`, its type as `event`
/// and its JSON as `data`. The stream resumes after `Last-Event-ID` (or `after`). A `gap` event with `after` and
/// `resumes_after` announces missing events. Otherwise the answer is a page; `wait_ms` waits for an event if there is none.
#[utoipa::path(
    get, path = "/v1/groups/{g}/events", tag = "events",
    security(("token" = ["read"])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "For streams: takes precedence over `after`"), EventsQuery),
    responses((status = 200, description = "A page of events, or a stream", content(
        (EventsPage = "application/json"), (String = "text/event-stream"),
    )), ReadErrors)
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    share: Share,
    answering: Answering,
    PathParams(group): PathParams<Group>,
    Query(mut query): Query<EventsQuery>,
    headers: HeaderMap,
) -> RouteResult {
    if stream::is_asked_for(&headers) {
        if query.limit.is_some() || query.before.is_some() || query.wait_ms.is_some() {
            return Err(Error::invalid("in the query: limit, before and wait_ms are not for streams").into());
        }
        query.after = stream::last_event_id(&headers)?.or(query.after);
        let wanted = query.request()?;
        let place = stream::place(&app, share)?;
        let events = EventFeed {
            group,
            query: EventQuery { limit: PAGE, ..wanted },
            full: false,
        };
        return stream::open(app, caller, events, (place, answering)).await;
    }
    let wanted = query.request()?;
    let page = page(&app, share, &group, &wanted).await?;
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    if !page.events.is_empty() || page.missed || wait.is_zero() {
        return json(StatusCode::OK, &EventsPage::from(page));
    }
    {
        let _place = stream::place(&app, share)?;
        let news = app.store.wait_for_events(&group, page.last, wait);
        tokio::select! {
            () = app.draining.cancelled() => {}
            () = app.guard.until_refused(&caller, &*app.clock, || app.time()) => {}
            // The read below reports a store that does not return from the wait.
            news = within(&*app.clock, wait + app.settings.request_timeout, news) => news.unwrap_or(Ok(()))?,
        }
    }
    // A token that was removed during the wait gets no new events. The next request is refused, if the token is still invalid
    // then.
    let news = if app.guard.still_knows(&caller, || app.time()) {
        self::page(&app, share, &group, &wanted).await?
    } else {
        page
    };
    json(StatusCode::OK, &EventsPage::from(news))
}

/// Reads a page with a permit for requests, which the wait does not hold.
async fn page(app: &Arc<App>, share: Share, group: &Group, wanted: &EventQuery) -> Result<EventPage, Failure> {
    let _place = Permit::enter(app, |app| &app.requests, share).ok_or_else(overloaded)?;
    Ok(app.read(app.store.events(group, wanted)).await?)
}

/// The events of a group.
struct EventFeed {
    group: Group,
    query: EventQuery,
    /// Whether there may be more events without waiting.
    full: bool,
}

impl Feed for EventFeed {
    async fn wait(&self, app: &App, patience: Duration) -> Result<()> {
        if self.full {
            return Ok(());
        }
        let after = self.query.after.unwrap_or_default();
        app.store.wait_for_events(&self.group, after, patience).await
    }

    async fn read(&mut self, app: &App) -> Result<String> {
        let page = app.read(app.store.events(&self.group, &self.query)).await?;
        let mut text = String::new();
        let before = self.query.after.unwrap_or_default();
        if page.missed {
            let resumes_after = page
                .events
                .first()
                .map_or(page.last.0, |event| event.id.0.saturating_sub(1));
            let gap = Gap {
                after: before.0,
                resumes_after,
            };
            stream::write(&mut text, resumes_after, "gap", &gap);
        }
        for event in page.events {
            let (id, kind) = (event.id.0, event.kind.as_str());
            stream::write(&mut text, id, kind, &EventAnswer::from(event));
        }
        // A page scans a bounded number of events of any type: progress means that there may be more.
        self.full = page.last != before || page.missed;
        // 0 is a group without any event yet, so none is missed.
        self.query.after = Some(page.last).filter(|last| last.0 != 0);
        Ok(text)
    }

    fn reached(&self) -> String {
        self.query.after.unwrap_or_default().to_string()
    }
}
