//! Events, as pages, long polls, or a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use tenure::wire::{Code, EventsPage, EventsQuery, Problem};
use tenure_core::clock::within;
use tenure_core::error::{Error, Outcome};
use tenure_core::event::{EventPage, EventQuery};
use tenure_core::id::Group;

use super::openapi::Reads;
use super::stream;
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
    params(
        ("g" = String, Path, description = "The group"),
        ("Last-Event-ID" = Option<u64>, Header, description = "For streams: goes before `after`"),
        EventsQuery
    ),
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
    if asks_for_a_stream(&headers) {
        if query.limit.is_some() || query.before.is_some() || query.wait_ms.is_some() {
            return Err(Error::invalid("in the query: limit, before and wait_ms are not for streams").into());
        }
        query.after = last_event_id(&headers)?.or(query.after);
        let wanted = query.request()?;
        let place = place(&app, share)?;
        return stream::open(app, caller, group, wanted, (place, answering)).await;
    }
    let wanted = query.request()?;
    let page = page(&app, share, &group, &wanted).await?;
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    if !page.events.is_empty() || page.missed || wait.is_zero() {
        return json(StatusCode::OK, &EventsPage::from(page));
    }
    {
        let _place = place(&app, share)?;
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

fn asks_for_a_stream(headers: &HeaderMap) -> bool {
    let kinds = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    kinds
        .filter_map(|kind| kind.split(';').next())
        .any(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    match headers.get("last-event-id").map(|value| value.to_str().map(str::trim)) {
        None | Some(Ok("")) => Ok(None),
        Some(Ok(text)) if text.parse::<u64>().is_ok() => Ok(text.parse().ok()),
        Some(_) => Err(Failure::new(
            Code::Invalid,
            "the Last-Event-ID is not the number of an event",
        )),
    }
}

/// A place among those who follow events, or a refusal.
fn place(app: &Arc<App>, share: Share) -> Result<Place, Failure> {
    Place::enter(app, |app| &app.streams, share).ok_or_else(|| {
        let detail = format!(
            "no room for another event stream: one caller may have {} in a group, and less while others have many",
            app.streams.limit()
        );
        let problem = Problem::new(Code::Overloaded, detail);
        Failure::from(
            problem
                .with_outcome(Outcome::Unchanged)
                .with_retry_after(Duration::from_secs(5)),
        )
    })
}
