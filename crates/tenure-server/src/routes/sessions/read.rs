//! Reading sessions: one, pages, counts, orphans.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{Orphans, OrphansQuery, Problem, Session, SessionFilter, SessionStats, SessionsPage, SessionsQuery};
use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId};
use tenure_core::session as core;
use tenure_core::store::{Page, PageRequest};

use super::not_found;
use crate::app::App;
use crate::extract::{NoQuery, PathParams, Query};
use crate::reply::{RouteResult, json};
use crate::routes::openapi::ReadErrors;

/// Sessions per call of the store. A session may have 270 kB of data, so a larger page may be cut short.
const TRANCHE: u32 = 100;
/// A page ends early once it has this many bytes of data.
const LONG: usize = 4 << 20;

/// Get a session
///
/// `state` is computed at the time of the read; it does not wait for a janitor or reaper.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "The session", body = Session),
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        ReadErrors
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    PathParams((group, session)): PathParams<(Group, SessionId)>,
    _: NoQuery,
) -> RouteResult {
    match app.read(app.store.session(&group, &session)).await? {
        Some(found) => json(StatusCode::OK, &found),
        None => Err(not_found(&group, &session)),
    }
}

/// List sessions
///
/// All, of one state or age, or the one with an alias. Disconnected sessions and orphans are ordered by the end of their grace, from
/// an index of disconnected sessions; a session whose members are all dead is in neither list until the janitor has run. A
/// short or empty page may still have a `next`.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions", tag = "sessions",
    security(("token" = ["read"])),
    params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = SessionsPage), ReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    Query(query): Query<SessionsQuery>,
) -> RouteResult {
    let page = match query.request()? {
        SessionFilter::Of(request) => app.read(read(&app, &group, request)).await?,
        SessionFilter::Alias(alias) => Page {
            items: Vec::from_iter(app.read(app.store.session_by_alias(&group, &alias)).await?),
            next: None,
        },
    };
    json(StatusCode::OK, &SessionsPage::from(page))
}

/// Reads a page in parts, and ends it early when it has too many bytes.
async fn read(app: &App, group: &Group, request: core::Sessions) -> Result<Page<core::Session>> {
    let core::Sessions {
        state,
        older_than,
        page,
    } = request;
    let (mut left, mut length) = (page.limit, 0);
    let mut all = Page {
        items: Vec::new(),
        next: page.after,
    };
    loop {
        let tranche = PageRequest::new(all.next.take(), left.min(TRANCHE))?;
        let read = app
            .store
            .sessions_older_than(group, state, older_than, &tranche)
            .await?;
        left -= tranche.limit;
        all.next = read.next;
        if left > 0 {
            length += read.items.iter().map(length_of).sum::<usize>();
        }
        all.items.extend(read.items);
        if left == 0 || length >= LONG || all.next.is_none() {
            return Ok(all);
        }
    }
}

fn length_of(session: &core::Session) -> usize {
    let fields = session.data.iter();
    fields.map(|(name, value)| name.len() + value.to_string().len()).sum()
}

/// Count sessions
///
/// Counted by index: a session whose members are all dead counts as active until the janitor has run. In the grace after a gap,
/// sessions whose grace was extended count as orphans until the reaper has updated the index.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions-stats", tag = "sessions",
    security(("token" = ["read"])),
    responses((status = 200, description = "Sessions by state", body = SessionStats), ReadErrors)
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
) -> RouteResult {
    let stats = app.read(app.store.session_stats(&group)).await?;
    json(StatusCode::OK, &stats)
}

/// List orphans
///
/// Ordered by the end of their grace. The cost depends on the number of orphans, not of sessions.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions-orphans", tag = "sessions",
    security(("token" = ["read"])),
    params(OrphansQuery),
    responses((status = 200, description = "The orphans", body = Orphans), ReadErrors)
)]
pub(crate) async fn orphans(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    Query(query): Query<OrphansQuery>,
) -> RouteResult {
    let (overdue, limit) = query.request()?;
    let found = app.read(app.store.orphans(&group, overdue, limit)).await?;
    json(StatusCode::OK, &found)
}
