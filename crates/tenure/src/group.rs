//! A group as a client sees it: join it or read it.

use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::event::{EventId, EventPage, EventQuery};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{EndBy, EndReason, Member};
use tenure_core::store::{Call, Page, PageRequest};
use tenure_core::sweep::{GroupStatus, SweepReport, SweepRequest};

use crate::client::Context;
use crate::event::EventFeed;
use crate::membership::{JoinOptions, Membership, Wrapper};
use crate::session::GroupSessions;
use crate::why::{Explanation, Subject, why};

/// A handle to a group. Clones share state.
#[derive(Clone)]
pub struct GroupHandle {
    context: Context,
    group: Group,
}

impl std::fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GroupHandle({})", self.group)
    }
}

impl GroupHandle {
    pub(crate) fn new(context: Context, group: Group) -> Self {
        Self { context, group }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The name of the group.
    #[must_use]
    pub fn name(&self) -> &Group {
        &self.group
    }

    /// Joins and keeps the tenure alive until the member leaves.
    ///
    /// # Errors
    /// `Invalid` or `Misconfigured` for a timing that cannot work. `Unavailable` when the store does not answer; a join
    /// with an unknown outcome is first retried a few times.
    pub async fn join(&self, options: JoinOptions) -> Result<Membership> {
        self.join_within(options, Duration::ZERO).await
    }

    /// Joins, and retries for up to `patience` while the store is unavailable. For programs that may start before their
    /// store. Other errors are returned immediately.
    ///
    /// # Errors
    /// Those of [`GroupHandle::join`]; `Unavailable` only after `patience`.
    pub async fn join_within(&self, options: JoinOptions, patience: Duration) -> Result<Membership> {
        let wrapper = Wrapper::find()?.filter(|wrapper| wrapper.group == self.group);
        if let Some(wrapper) = wrapper.filter(|wrapper| options.member.as_ref() == Some(wrapper.first.member())) {
            let member = wrapper.first.member();
            return Err(Error::invalid(format!(
                "{member} is the member of the wrapper around this process, and joining as it would end the wrapper; \
                 `Tenure::inherit` acts under its tenure"
            )));
        }
        Membership::join(self.context.clone(), self.group.clone(), options, patience).await
    }

    /// Looks up a member. `None` when it has no current tenure.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn member(&self, name: &str) -> Result<Option<Member>> {
        self.context.store.member(&self.group, &MemberId::new(name)?).await
    }

    /// Lists the current members, page by page.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn members(&self, page: &PageRequest) -> Result<Page<Member>> {
        self.context.store.members(&self.group, page).await
    }

    /// Ends the tenure of a member as an operator. The client of the member stops and reports it.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn expel(&self, tenure: &TenureId) -> Result<EndReason> {
        self.context
            .store
            .end(&self.group, tenure, EndBy::Expel, Call::default())
            .await
    }

    /// The state of the group.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn status(&self) -> Result<GroupStatus> {
        self.context.store.status(&self.group).await
    }

    /// Reads events.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        self.context.store.events(&self.group, query).await
    }

    /// Follows the events after a position, from the oldest that is kept if there is none. The feed resumes by itself after
    /// an outage, and announces events that it missed.
    #[must_use]
    pub fn follow(&self, after: Option<EventId>) -> EventFeed {
        EventFeed::new(self.context.clone(), self.group.clone(), after)
    }

    /// Runs one full janitor pass now.
    ///
    /// # Errors
    /// Those of the steps.
    pub async fn sweep(&self, request: &SweepRequest) -> Result<SweepReport> {
        let pass = format!("{:016x}", self.context.clock.entropy());
        self.context
            .store
            .sweep(&self.group, request, &pass, Call::default())
            .await
    }

    /// The sessions of the group, read-only. To serve sessions, join and use [`Membership::sessions`].
    #[must_use]
    pub fn sessions(&self) -> GroupSessions {
        GroupSessions::new(self.context.clone(), self.group.clone())
    }

    /// The history of a member, a tenure, a key, a lease or a session, with reasons. See [`crate::why`].
    ///
    /// # Errors
    /// `Invalid` for any other id, `Unavailable`.
    pub async fn why(&self, id: &str) -> Result<Explanation> {
        why(&*self.context.store, &self.group, &Subject::parse(id)?).await
    }
}
