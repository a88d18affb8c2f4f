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
use crate::extract::{Names, Query};
use crate::front::overloaded;
use crate::reply::{Answer, json};
use crate::room::{Place, Share};
use crate::routes::openapi::RosterReads;
use crate::routes::stream::{self, Feed, PAGE};

/// How often a stream reads the ledger, which does not announce changes.
const POLL: Duration = Duration::from_secs(1);

/// Read the log, or follow it
///
/// Every change of a provider's state, once, the oldest first: of one provider or of all. With `Accept: text/event-stream` it
/// is a stream that never ends: each entry with its `id`, its `change` as `event` and itself as `data`. It resumes after
/// `Last-Event-ID` (or `after`), and reads the ledger once a second.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/log", tag = "rosters",
    security(("token" = ["read"])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "For streams: goes before `after`"), LogQuery),
    responses((status = 200, description = "A page of the log, or a stream", content(
        (LogPage = "application/json"), (String = "text/event-stream"),
    )), RosterReads)
)]
pub(crate) async fn log(
    State(app): State<Arc<App>>,
    caller: Caller,
    share: Share,
    answering: Answering,
    Names(name): Names<RosterName>,
    Query(mut query): Query<LogQuery>,
    headers: HeaderMap,
) -> Answer {
    let roster = app.roster(&name)?;
    if stream::is_asked_for(&headers) {
        if query.limit.is_some() {
            return Err(Error::invalid("in the query: limit is not for streams").into());
        }
        let resumed = stream::last_event_id(&headers)?.map(|id| id.to_string());
        query.after = resumed.or(query.after);
        let (provider, page) = query.request()?;
        let place = stream::place(&app, share)?;
        // Here, so that the refusal names the nearest roster.
        app.look_in_roster(&caller, &name, roster.exists()).await?;
        let entries = Entries {
            roster,
            provider,
            page: PageRequest { limit: PAGE, ..page },
            full: true,
        };
        return stream::open(app, caller, entries, (place, answering)).await;
    }
    let _place = Place::enter(&app, |app| &app.requests, share).ok_or_else(overloaded)?;
    let (provider, page) = query.request()?;
    let entries = app
        .look_in_roster(&caller, &name, roster.log(provider.as_ref(), &page))
        .await?;
    json(StatusCode::OK, &LogPage::from(entries))
}

/// The entries of a log.
struct Entries {
    roster: Roster,
    provider: Option<ProviderId>,
    page: PageRequest,
    /// The last page was full: there may be more at once.
    full: bool,
}

impl Feed for Entries {
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
