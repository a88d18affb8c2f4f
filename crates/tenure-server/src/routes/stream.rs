//! Server-sent events.
//!
//! The connection pulls the stream: it reads the next page when the client has taken the previous one. So a slow client costs
//! one page of memory, and one that does not read is disconnected. The content comes from a [`Feed`], which keeps the position;
//! spurious wake-ups are harmless.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tenure::wire::{Code, Problem};
use tenure_core::clock::within;
use tenure_core::error::{Outcome, Result};

use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::reply::{Failure, RouteResult};
use crate::room::{Permit, Share};

/// Events per piece.
pub(super) const PAGE: u32 = 100;
/// The pause after a failed read. The stream stays open and loses nothing.
const RETRY: Duration = Duration::from_secs(1);

/// The content of a stream and its position. Its futures are cancel-safe.
pub(super) trait Feed: Send + Sync + 'static {
    /// Waits until there may be more, at most for `patience`.
    fn wait(&self, app: &App, patience: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Returns the next text, which may be empty, and advances past it.
    fn read(&mut self, app: &App) -> impl Future<Output = Result<String>> + Send;

    /// The current position, for `Last-Event-ID`.
    fn reached(&self) -> String;
}

/// Opens a stream. The first page is read before the response begins, so that an unreachable store is a 503.
pub(super) async fn open(app: Arc<App>, caller: Caller, mut feed: impl Feed, held: (Permit, Answering)) -> RouteResult {
    // Begins with a comment, so that the client knows immediately that the stream works.
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
    // The connection closes with the stream, at shutdown for example; the header must say so now.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // Proxies that buffer would delay events.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

struct Stream<F> {
    app: Arc<App>,
    /// The reader: removing its token ends the stream.
    caller: Caller,
    feed: F,
    #[expect(dead_code, reason = "held until the stream ends")]
    held: (Permit, Answering),
}

impl<F: Feed> Stream<F> {
    /// The next piece; `None` at shutdown, and when the reader would no longer be admitted.
    async fn next(&mut self) -> Option<String> {
        let app = Arc::clone(&self.app);
        let keep_alive = app.settings.stream_keep_alive;
        let draining = app.draining.clone();
        let caller = self.caller.clone();
        let piece = tokio::select! {
            biased;
            () = draining.cancelled() => return None,
            () = app.guard.until_refused(&caller, &*app.clock, || app.time()) => return None,
            news = within(&*app.clock, keep_alive, self.news()) => news.unwrap_or_else(|| self.still_here()),
        };
        // The news may have arrived before the wait for a removal was woken.
        app.guard.still_knows(&self.caller, || app.time()).then_some(piece)
    }

    /// Waits for the next text. Cancel-safe: the position advances only with a result.
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

    /// A keep-alive comment with the current position, which may have advanced past events of other types.
    fn still_here(&self) -> String {
        format!(": still here\nid: {}\n\n", self.feed.reached())
    }
}

pub(super) fn write(text: &mut String, id: u64, kind: &str, data: &impl serde::Serialize) {
    // One `data` line is enough: the JSON has no line breaks. Writing to a String does not fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n");
}

/// Whether the client accepts a stream.
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

/// The position to resume after.
///
/// # Errors
/// 422 for a value that is not a number.
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

/// A permit for a stream or long poll.
///
/// # Errors
/// 503 when none is free.
pub(super) fn place(app: &Arc<App>, share: Share) -> Result<Permit, Failure> {
    Permit::enter(app, |app| &app.streams, share).ok_or_else(|| {
        let detail = format!(
            "too many event streams: one caller may have {} in a group, and fewer while other callers have many",
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
