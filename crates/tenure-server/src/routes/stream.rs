//! Events as they happen: server-sent events.
//!
//! A stream is pulled by its connection: it reads a page when the client has taken the one before, so that a slow client
//! costs one page of memory, and one that does not read at all is dropped by its connection. It remembers where it is
//! itself; being woken too often, or for nothing, does no harm.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tenure::wire::Gap;
use tenure_core::clock::within;
use tenure_core::event::{EventId, EventPage, EventQuery};
use tenure_core::id::Group;

use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::reply::Answer;
use crate::room::Place;

/// How many events travel in one piece.
const PAGE: u32 = 100;
/// The wait after the store failed to answer; the stream stays open, and its reader misses nothing.
const RETRY: Duration = Duration::from_secs(1);

/// Opens a stream. The first page is read before the answer begins, so that a store that is away is a 503.
pub(crate) async fn open(
    app: Arc<App>,
    caller: Caller,
    group: Group,
    wanted: EventQuery,
    held: (Place, Answering),
) -> Answer {
    let query = EventQuery { limit: PAGE, ..wanted };
    let first = app.read(app.store.events(&group, &query)).await?;
    let stream = Stream {
        app,
        caller,
        group,
        query,
        full: false,
        held,
    };
    // A comment first: whoever connects knows at once that it works.
    let begin = (stream, Some((": here\n\n".to_owned(), first)));
    let pieces = futures_util::stream::unfold(begin, |(mut stream, begin)| async move {
        let piece = match begin {
            Some((mut text, page)) => {
                stream.take(&page, &mut text);
                text
            }
            None => stream.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(piece)), (stream, None)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold events back.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

struct Stream {
    app: Arc<App>,
    /// Who reads: a token that is taken away ends the stream.
    caller: Caller,
    group: Group,
    query: EventQuery,
    /// The last page was full: there may be more at once.
    full: bool,
    #[expect(dead_code, reason = "held until the stream ends")]
    held: (Place, Answering),
}

impl Stream {
    /// The next piece; `None` when the server goes down, and for a reader who would not be let in any more.
    async fn next(&mut self) -> Option<String> {
        let app = Arc::clone(&self.app);
        let keep_alive = app.settings.stream_keep_alive;
        let draining = app.draining.clone();
        let piece = tokio::select! {
            biased;
            () = draining.cancelled() => return None,
            news = within(&*app.clock, keep_alive, self.news()) => news.unwrap_or_else(|| self.still_here()),
        };
        // After the wait, which may have been long: nothing of what came meanwhile is for one who was let in before it.
        app.guard.still_knows(&self.caller, || app.time()).then_some(piece)
    }

    /// Waits for something to tell. May be dropped at any await: it moves on only when it answers.
    async fn news(&mut self) -> String {
        loop {
            if !self.full {
                let after = self.query.after.unwrap_or_default();
                let wait = self.app.settings.stream_keep_alive;
                if self.app.store.wait_for_events(&self.group, after, wait).await.is_err() {
                    self.app.clock.sleep(RETRY).await;
                }
            }
            match self.app.read(self.app.store.events(&self.group, &self.query)).await {
                Ok(page) => {
                    let mut text = String::new();
                    self.take(&page, &mut text);
                    if !text.is_empty() {
                        return text;
                    }
                }
                Err(_) => self.app.clock.sleep(RETRY).await,
            }
        }
    }

    /// Writes a page, and moves on behind it.
    fn take(&mut self, page: &EventPage, text: &mut String) {
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
            write(text, resumes_after, "gap", &gap);
        }
        for event in &page.events {
            write(text, event.id.0, event.kind.as_str(), event);
        }
        // A page looks at a bounded number of events, wanted or not: moving on means that there may be more.
        self.full = page.last != before || page.missed;
        // 0 stands for a group that nobody used yet: its first event is still to come, and nothing is missed by it.
        self.query.after = Some(page.last).filter(|last| last.0 != 0);
    }

    /// A comment, so that both sides know that the other is there, and where the reader is: events of other types may
    /// have passed.
    fn still_here(&self) -> String {
        format!(": still here\nid: {}\n\n", self.query.after.unwrap_or_default())
    }
}

fn write(text: &mut String, id: u64, kind: &str, data: &impl serde::Serialize) {
    // JSON without line breaks, so that one `data` line holds it; writing to a String does not fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(text, "id: {}\nevent: {kind}\ndata: {data}\n\n", EventId(id));
}
