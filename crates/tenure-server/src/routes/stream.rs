//! What happens, as it happens: server-sent events.
//!
//! A stream is pulled by its connection: it reads a page when the client has taken the one before, so that a slow client
//! costs one page of memory, and one that does not read at all is dropped by its connection. What it tells is a [`Feed`],
//! which remembers where it is; being woken too often, or for nothing, does no harm.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tenure::wire::{Code, Problem};
use tenure_core::clock::within;
use tenure_core::error::{Outcome, Result};

use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::reply::{Answer, Failure};
use crate::room::{Place, Share};

/// How many events travel in one piece.
pub(super) const PAGE: u32 = 100;
/// The wait after the store failed to answer; the stream stays open, and its reader misses nothing.
const RETRY: Duration = Duration::from_secs(1);

/// What a stream tells, and how far it has come. Any of its futures may be dropped before it answers.
pub(super) trait Feed: Send + Sync + 'static {
    /// Waits until there may be more, or until `patience` is over.
    fn wait(&self, app: &App, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Writes what comes next, nothing when there is none, and moves on behind it.
    fn read(&mut self, app: &App) -> impl Future<Output = Result<String>> + Send;

    /// The id after which a reader would resume now.
    fn reached(&self) -> String;
}

/// Opens a stream. The first page is read before the answer begins, so that a store that is away is a 503.
pub(super) async fn open(app: Arc<App>, caller: Caller, mut feed: impl Feed, held: (Place, Answering)) -> Answer {
    // A comment first: the client knows immediately that the stream works.
    let begin = format!(": here\n\n{}", feed.read(&app).await?);
    let stream = Stream {
        app,
        caller,
        feed,
        held,
    };
    let pieces = futures_util::stream::unfold((stream, Some(begin)), |(mut stream, begin)| async move {
        let piece = match begin {
            Some(text) => text,
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

struct Stream<F> {
    app: Arc<App>,
    /// Who reads: a token that is taken away ends the stream.
    caller: Caller,
    feed: F,
    #[expect(dead_code, reason = "held until the stream ends")]
    held: (Place, Answering),
}

impl<F: Feed> Stream<F> {
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
        let app = Arc::clone(&self.app);
        loop {
            if self.feed.wait(&app, app.settings.stream_keep_alive).await.is_err() {
                app.clock.sleep(RETRY).await;
            }
            match self.feed.read(&app).await {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return text,
                Err(_) => app.clock.sleep(RETRY).await,
            }
        }
    }

    /// A comment, so that both sides know that the other is there, and where the reader is: events of other types may
    /// have passed.
    fn still_here(&self) -> String {
        format!(": still here\nid: {}\n\n", self.feed.reached())
    }
}

pub(super) fn write(text: &mut String, id: u64, kind: &str, data: &impl serde::Serialize) {
    // JSON without line breaks, so that one `data` line holds it; writing to a String does not fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n");
}

/// Whether a stream is asked for, and no page.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let kinds = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    kinds
        .filter_map(|kind| kind.split(';').next())
        .any(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Where a reader resumes.
///
/// # Errors
/// 422 for what is no number.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
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
///
/// # Errors
/// 503 when there is none.
pub(super) fn place(app: &Arc<App>, share: Share) -> Result<Place, Failure> {
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
