//! The log of a roster, as pages or as a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tenure::roster::Roster;
use tenure::wire::roster::{LogPage, LogQuery};
use tenure_core::error::{Error, Result};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::store::PageRequest;

use crate::app::App;
use crate::auth::Caller;
use crate::connections::Answering;
use crate::extract::{PathParams, Query};
use crate::middleware::overloaded;
use crate::reply::{RouteResult, json};
use crate::room::{Permit, Share};
use crate::routes::openapi::RosterReadErrors;
use crate::routes::stream::{self, Feed, PAGE};

/// How often a stream polls the ledger, which does not notify.
const POLL: Duration = Duration::from_secs(1);

/// Read the log, or follow it
///
/// Every change of a provider's state exactly once, oldest first, of one provider or of all. With `Accept: text/event-stream`
/// the answer is an endless stream: each entry has its `id`, its `change` as `event` and its JSON as `data`. The stream resumes
/// after `Last-Event-ID` (or `after`), and polls the ledger once a second.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/log", tag = "rosters",
    security(("token" = ["read"])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "For streams: takes precedence over `after`"), LogQuery),
    responses((status = 200, description = "A page of the log, or a stream", content(
        (LogPage = "application/json"), (String = "text/event-stream"),
    )), RosterReadErrors)
)]
pub(crate) async fn log(
    State(app): State<Arc<App>>,
    caller: Caller,
    share: Share,
    answering: Answering,
    PathParams(name): PathParams<RosterName>,
    Query(mut query): Query<LogQuery>,
    headers: HeaderMap,
) -> RouteResult {
    let roster = app.roster(&name)?;
    if stream::is_asked_for(&headers) {
        if query.limit.is_some() {
            return Err(Error::invalid("in the query: limit is not for streams").into());
        }
        let resumed = stream::last_event_id(&headers)?.map(|id| id.to_string());
        query.after = resumed.or(query.after);
        let (provider, page) = query.request()?;
        let place = stream::place(&app, share)?;
        // Checked here, so that the error suggests the nearest name.
        app.look_in_roster(&caller, &name, roster.exists()).await?;
        let entries = LogFeed {
            roster,
            provider,
            page: PageRequest { limit: PAGE, ..page },
            full: true,
        };
        return stream::open(app, caller, entries, (place, answering)).await;
    }
    let _place = Permit::enter(&app, |app| &app.requests, share).ok_or_else(overloaded)?;
    let (provider, page) = query.request()?;
    let entries = app
        .look_in_roster(&caller, &name, roster.log(provider.as_ref(), &page))
        .await?;
    json(StatusCode::OK, &LogPage::from(entries))
}

/// The entries of a log.
struct LogFeed {
    roster: Roster,
    provider: Option<ProviderId>,
    page: PageRequest,
    /// Whether there may be more entries without waiting.
    full: bool,
}

impl Feed for LogFeed {
    async fn wait(&self, app: &App, patience: Duration) -> Result<()> {
        if !self.full {
            app.clock.sleep(POLL.min(patience)).await;
        }
        Ok(())
    }

    async fn read(&mut self, app: &App) -> Result<String> {
        let read = self.roster.log(self.provider.as_ref(), &self.page);
        let read = app.look_in(read).await?;
        let mut text = String::new();
        for entry in read.items {
            stream::write(&mut text, entry.id, entry.change.as_str(), &entry);
            self.page.after = Some(entry.id.to_string());
        }
        self.full = read.next.is_some();
        Ok(text)
    }

    fn reached(&self) -> String {
        self.page.after.clone().unwrap_or_else(|| "0".to_owned())
    }
}
