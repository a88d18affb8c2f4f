//! The sessions of a group, for callers without a membership.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::event::EventId;
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::{Data, DeleteOutcome, Orphans, PatchOutcome, Session, SessionState, SessionStats};
use tenure_core::store::{Call, Page, PageRequest};

use super::reaped::ReapedFeed;
use crate::client::Context;

/// The sessions of a group. No membership is needed. Cheap to clone.
#[derive(Clone)]
pub struct GroupSessions {
    context: Context,
    group: Group,
}

impl std::fmt::Debug for GroupSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GroupSessions({})", self.group)
    }
}

impl GroupSessions {
    pub(crate) fn new(context: Context, group: Group) -> Self {
        Self { context, group }
    }

    /// Looks a session up. Its state is computed at the time of the read and waits for no sweep: connections of dead
    /// members do not make it active.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn look_up(&self, session: &str) -> Result<Option<Session>> {
        let session = SessionId::new(session)?;
        self.context
            .read(self.context.store.session(&self.group, &session))
            .await
    }

    /// Looks a session up by its alias.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn look_up_alias(&self, alias: &str) -> Result<Option<Session>> {
        let alias = Alias::new(alias)?;
        self.context
            .read(self.context.store.session_by_alias(&self.group, &alias))
            .await
    }

    /// Lists the sessions of a state, or all, page by page.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    pub async fn list(&self, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        self.context
            .read(self.context.store.sessions(&self.group, state, page))
            .await
    }

    /// Lists the sessions that have had no connection for at least this long, disconnected ones or orphans or both, page
    /// by page.
    ///
    /// # Errors
    /// `Invalid` for the state active or a cursor that is not from a page of this listing, `Unavailable`.
    pub async fn list_older_than(
        &self,
        state: Option<SessionState>,
        older_than: Duration,
        page: &PageRequest,
    ) -> Result<Page<Session>> {
        let store = &self.context.store;
        let listed = store.sessions_older_than(&self.group, state, older_than, page);
        self.context.read(listed).await
    }

    /// Lists up to `limit` sessions whose grace has been over for at least `overdue`. More than a few mean that no
    /// reaper runs.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, `Unavailable`.
    pub async fn orphans(&self, overdue: Duration, limit: u32) -> Result<Orphans> {
        self.context
            .read(self.context.store.orphans(&self.group, overdue, limit))
            .await
    }

    /// Counts the sessions.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn stats(&self) -> Result<SessionStats> {
        self.context.read(self.context.store.session_stats(&self.group)).await
    }

    /// Changes the data of a session: each given field replaces the old one, and `null` removes it. A front-end that
    /// serves the session uses [`super::Connection::patch`], which fails once its tenure has ended.
    ///
    /// # Errors
    /// `Invalid` for an exceeded limit, `Unavailable`; repeating it is safe.
    pub async fn patch(&self, session: &str, data: &Data) -> Result<PatchOutcome> {
        let (store, session) = (&self.context.store, SessionId::new(session)?);
        let call = store.patch_session(&self.group, &session, None, data, Call::default());
        self.context.act(call).await
    }

    /// Deletes a session that has no connections, without waiting for its grace. [`Self::reaped`] does not report it.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`; repeating it is safe.
    pub async fn delete(&self, session: &str) -> Result<DeleteOutcome> {
        let (store, session) = (&self.context.store, SessionId::new(session)?);
        let call = store.delete_session(&self.group, &session, Call::default());
        self.context.act(call).await
    }

    /// The sessions that were reaped after a position, for side effects of the application (leaving a room, closing an
    /// order). A reader that stores the position after handling each event, and resumes from it, receives each reaped
    /// session at least once. `None` starts at the oldest event that is kept; to receive only new ones, start at
    /// `last_event` of the group's status.
    ///
    /// ```
    /// # use tenure::{EventId, GroupHandle, Result};
    /// use tenure::session::ReapedEvent;
    ///
    /// async fn clean_up(group: &GroupHandle, mut position: Option<EventId>) -> Result<()> {
    ///     let mut feed = group.sessions().reaped(position);
    ///     loop {
    ///         match feed.next().await? {
    ///             // The same session and epoch may arrive again after a crash. Make the handler idempotent, for
    ///             // instance by keeping the epoch with what it removes.
    ///             ReapedEvent::Reaped(gone) => remove_from_rooms(gone.session.as_str(), gone.epoch.get()),
    ///             // Some were missed. Remove whatever is kept for a session that no longer exists.
    ///             ReapedEvent::Gap => compare_everything_with_the_list_of_sessions(),
    ///         }
    ///         // Only now: an event that was not handled is delivered again.
    ///         position = feed.position();
    ///         keep(position);
    ///     }
    /// }
    /// # fn remove_from_rooms(_: &str, _: u64) {}
    /// # fn compare_everything_with_the_list_of_sessions() {}
    /// # fn keep(_: Option<EventId>) {}
    /// ```
    #[must_use]
    pub fn reaped(&self, after: Option<EventId>) -> ReapedFeed {
        ReapedFeed::new(self.context.clone(), self.group.clone(), after)
    }
}
