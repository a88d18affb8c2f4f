//! Reading sessions: one, pages, counts, orphans.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{Orphans, OrphansQuery, Problem, Session, SessionStats, SessionsPage, SessionsQuery, WhichSessions};
use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId};
use tenure_core::session::{self as core, SessionState};
use tenure_core::store::{Page, PageRequest};

use super::not_found;
use crate::app::App;
use crate::extract::{Names, NoQuery, Query};
use crate::reply::{Answer, json};
use crate::routes::openapi::Reads;

/// How many sessions are asked for at once. A page of more is cut off when it gets long: a session may be 270 kB of data.
const TRANCHE: u32 = 100;
/// A page is long from so many bytes of data on.
const LONG: usize = 4 << 20;

/// Look a session up
///
/// `state` is as of now; it does not wait for a janitor or a reaper.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "The session", body = Session),
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        Reads
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    Names((group, session)): Names<(Group, SessionId)>,
    _: NoQuery,
) -> Answer {
    match app.read(app.store.session(&group, &session)).await? {
        Some(found) => json(StatusCode::OK, &found),
        None => Err(not_found(&group, &session)),
    }
}

/// List sessions
///
/// All, of one state, or the one with an alias. Disconnected ones and orphans come by when their grace ends, from an index
/// of the disconnected alone; a session whose connections are all of the dead is in neither list until the janitor has
/// come. A page may be shorter than its limit, and empty, and still have a `next`.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions", tag = "sessions",
    security(("token" = ["read"])),
    params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = SessionsPage), Reads)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    Query(query): Query<SessionsQuery>,
) -> Answer {
    let page = match query.request()? {
        WhichSessions::Of(state, page) => app.read(read(&app, &group, state, page)).await?,
        WhichSessions::Alias(alias) => Page {
            items: Vec::from_iter(app.read(app.store.session_by_alias(&group, &alias)).await?),
            next: None,
        },
    };
    json(StatusCode::OK, &SessionsPage::from(page))
}

/// Reads a page in tranches, and ends it early when it gets long.
async fn read(app: &App, group: &Group, state: Option<SessionState>, page: PageRequest) -> Result<Page<core::Session>> {
    let (mut left, mut length) = (page.limit, 0);
    let mut all = Page {
        items: Vec::new(),
        next: page.after,
    };
    loop {
        let tranche = PageRequest::new(all.next.take(), left.min(TRANCHE))?;
        let read = app.store.sessions(group, state, &tranche).await?;
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
/// By index: sessions whose connections are all of the dead count as active until the janitor comes, and within a grace
/// after a gap those that would be over count as orphans until the reaper has looked.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions-stats", tag = "sessions",
    security(("token" = ["read"])),
    responses((status = 200, description = "How many there are", body = SessionStats), Reads)
)]
pub(crate) async fn stats(State(app): State<Arc<App>>, Names(group): Names<Group>, _: NoQuery) -> Answer {
    let stats = app.read(app.store.session_stats(&group)).await?;
    json(StatusCode::OK, &stats)
}

/// List orphans
///
/// Those first whose grace ended first. What this costs depends on how many there are, not on how many sessions there are.
#[utoipa::path(
    get, path = "/v1/groups/{g}/sessions-orphans", tag = "sessions",
    security(("token" = ["read"])),
    params(OrphansQuery),
    responses((status = 200, description = "The orphans", body = Orphans), Reads)
)]
pub(crate) async fn orphans(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    Query(query): Query<OrphansQuery>,
) -> Answer {
    let (overdue, limit) = query.request()?;
    let found = app.read(app.store.orphans(&group, overdue, limit)).await?;
    json(StatusCode::OK, &found)
}
