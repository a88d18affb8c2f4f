//! Events, as pages, long polls, or a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tenure::wire::{EventsPage, EventsQuery, Gap};
use tenure_core::clock::within;
use tenure_core::error::{Error, Result};
use tenure_core::event::{EventPage, EventQuery};
use tenure_core::id::Group;

use super::openapi::Reads;
use super::stream::{self, Feed, PAGE};
use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::extract::{Names, Query};
use crate::front::overloaded;
use crate::reply::{Answer, Failure, json};
use crate::room::{Place, Share};

/// Read events, or follow them
///
/// With `Accept: text/event-stream` it is a stream that never ends: each event with its number as `id`, its type as
/// `event` and itself as `data`. It resumes after `Last-Event-ID` (or `after`). When events are missing there is a `gap`
/// event, with `after` and `resumes_after` in its data. Otherwise it is a page; `wait_ms` waits for news when there are
/// none.
#[utoipa::path(
    get, path = "/v1/groups/{g}/events", tag = "events",
    security(("token" = ["read"])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "For streams: goes before `after`"), EventsQuery),
    responses((status = 200, description = "A page of events, or a stream", content(
        (EventsPage = "application/json"), (String = "text/event-stream"),
    )), Reads)
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    share: Share,
    answering: Answering,
    Names(group): Names<Group>,
    Query(mut query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer {
    if stream::is_asked_for(&headers) {
        if query.limit.is_some() || query.before.is_some() || query.wait_ms.is_some() {
            return Err(Error::invalid("in the query: limit, before and wait_ms are not for streams").into());
        }
        query.after = stream::last_event_id(&headers)?.or(query.after);
        let wanted = query.request()?;
        let place = stream::place(&app, share)?;
        let events = Events {
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
            // A store that does not come back from waiting is found out by the read that follows.
            news = within(&*app.clock, wait + app.settings.request_timeout, news) => news.unwrap_or(Ok(()))?,
        }
    }
    // What came meanwhile is not for a token that was taken away meanwhile. It is told so when it asks again: it may as well
    // have been changed, and still do.
    let news = if app.guard.still_knows(&caller, || app.time()) {
        self::page(&app, share, &group, &wanted).await?
    } else {
        page
    };
    json(StatusCode::OK, &EventsPage::from(news))
}

/// Reads a page as one of the requests that are counted; waiting is not.
async fn page(app: &Arc<App>, share: Share, group: &Group, wanted: &EventQuery) -> Result<EventPage, Failure> {
    let _place = Place::enter(app, |app| &app.requests, share).ok_or_else(overloaded)?;
    Ok(app.read(app.store.events(group, wanted)).await?)
}

/// The events of a group.
struct Events {
    group: Group,
    query: EventQuery,
    /// The last page was full: there may be more at once.
    full: bool,
}

impl Feed for Events {
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
        for event in &page.events {
            stream::write(&mut text, event.id.0, event.kind.as_str(), event);
        }
        // A page looks at a bounded number of events, wanted or not: moving on means that there may be more.
        self.full = page.last != before || page.missed;
        // 0 is a group that was never used: its first event is still to come, so none is missed.
        self.query.after = Some(page.last).filter(|last| last.0 != 0);
        Ok(text)
    }

    fn reached(&self) -> String {
        self.query.after.unwrap_or_default().to_string()
    }
}
