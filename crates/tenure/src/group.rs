//! A group as a client sees it: joining it, and looking at it.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::event::{EventPage, EventQuery};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{EndBy, EndReason, Member};
use tenure_core::store::{Call, Page, PageRequest};
use tenure_core::sweep::{GroupStatus, SweepReport, SweepRequest};

use crate::client::Context;
use crate::membership::{JoinOptions, Membership};
use crate::session::GroupSessions;
use crate::why::{Explanation, Subject, why};

/// A group. Cheap to clone.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Group {
        &self.group
    }

    /// Joins, and keeps the tenure alive until it is left.
    ///
    /// # Errors
    /// `Invalid` or `Misconfigured` for a timing that cannot work, `Unavailable` when the store does not answer (a join
    /// whose outcome is unknown is tried again a few times first).
    pub async fn join(&self, options: JoinOptions) -> Result<Membership> {
        self.join_within(options, Duration::ZERO).await
    }

    /// The same for a program that may start before its store: tries again for as long as `patience` while the store does
    /// not answer. What cannot get better by waiting is an error at once.
    ///
    /// # Errors
    /// Those of [`GroupHandle::join`]; `Unavailable` only once `patience` is over.
    pub async fn join_within(&self, options: JoinOptions, patience: Duration) -> Result<Membership> {
        Membership::join(self.context.clone(), self.group.clone(), options, patience).await
    }

    /// Looks a member up. `None` when it has no current tenure.
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

    /// Ends somebody's tenure, as an operator. Its client stops and says so.
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

    /// What happened.
    ///
    /// # Errors
    /// `Invalid`, `Unavailable`.
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        self.context.store.events(&self.group, query).await
    }

    /// Runs a whole pass of the janitor now.
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

    /// The sessions of the group. To serve some, join: [`Membership::sessions`].
    #[must_use]
    pub fn sessions(&self) -> GroupSessions {
        GroupSessions::new(self.context.clone(), self.group.clone())
    }

    /// What happened to a member, a tenure, a key, a lease or a session, when, and why. See [`crate::why`].
    ///
    /// # Errors
    /// `Invalid` for what is none of them, `Unavailable`.
    pub async fn why(&self, id: &str) -> Result<Explanation> {
        why(&*self.context.store, &self.group, &Subject::parse(id)?).await
    }
}
