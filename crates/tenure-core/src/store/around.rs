//! A store around another: it says once what happens to a call, and so for every call of every noun.
//!
//! A store that runs its calls elsewhere, counts them, or loses their replies treats them all alike. It implements
//! [`Around`] and is a [`Store`] by that; a call comes to it as an [`Ask`], which it may make on the store inside, on
//! another, twice, later, or not at all. The calls stand in one table below: a new method of a store trait is a line
//! there and a [`Verb`].
//!
//! It refuses to look into a call: what has to know arguments and answers (a client that turns calls into messages)
//! implements the traits themselves.

mod argument;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::argument::Argument;
use super::{Call, Finding, Health, PROBE_GROUP, Page, PageRequest, Probed, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventId, EventLog, EventPage, EventQuery};
use crate::id::{Alias, Group, Key, LeaseName, MemberId, ProviderId, RegistryName, SessionId, TenureId};
use crate::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token};
use crate::ledger::RosterSettings;
use crate::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore};
use crate::registry::{Claim, ClaimMode, Claimed, RegistryStore};
use crate::roster::{
    Availability, Heartbeat, Heartbeats, Looked, Over, Pending, Put, PutOutcome, Ranked, RosterMirror, Rows, Seated,
    Stamp, Stats, Task, Turn, TurnRequest, Verified,
};
use crate::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore,
};
use crate::settling::GapCause;
use crate::sweep::{
    Doomed, EndedBatch, GroupStatus, ReapedBatch, ReconcileRequest, Reconciled, ReleaseRequest, ReleasedBatch,
    SettleReport, Sweep, SweepReport, SweepRequest, SweepSteps, run_pass,
};
use crate::target::{Target, TargetSpec, TargetStore};
use crate::time::StoreTime;

/// Which call of a store, by the name of its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the method of that name, and is described there")]
pub enum Verb {
    Join,
    Beat,
    End,
    Member,
    Members,
    Claim,
    ReleaseClaim,
    ClaimOf,
    Claims,
    Acquire,
    ReleaseLeases,
    LeaseOf,
    Leases,
    HeldLeases,
    PutTarget,
    RemoveTarget,
    Target,
    Targets,
    Attach,
    Detach,
    PatchSession,
    DeleteSession,
    Session,
    SessionByAlias,
    Sessions,
    Orphans,
    SessionStats,
    Events,
    WaitForEvents,
    Tick,
    EndLapsed,
    Spare,
    Release,
    Reap,
    Reconcile,
    Doomed,
    PutProviders,
    Seat,
    Heartbeat,
    Available,
    Availability,
    Look,
    Rows,
    RosterStats,
    Stamp,
    PendingOffline,
    OfflineDone,
    PutRosterSettings,
    RosterSettings,
    Retime,
    TakeTurn,
    EndTurn,
    MarkSeeded,
    VerifyRoster,
    Status,
    Sweep,
    Now,
    Groups,
    NewestEvents,
    FindGroups,
    Settle,
    ForgetGroup,
}

/// A call under way. Dropping it is like dropping the call itself.
pub type Running<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A call that is asked for and not made yet. It owns its arguments, since it may outlive its caller's borrow.
pub struct Ask<T> {
    /// Which one.
    pub verb: Verb,
    /// The group that it is about; `None` when it is about the whole store.
    pub group: Option<Group>,
    /// How many things it lists (beats, keys, leases); 0 for a call that takes no list.
    pub items: usize,
    call: Box<dyn Fn(Arc<dyn Store>) -> Running<T> + Send + Sync>,
}

impl<T> Ask<T> {
    fn new(
        verb: Verb,
        group: Option<&Group>,
        call: impl Fn(Arc<dyn Store>) -> Running<T> + Send + Sync + 'static,
    ) -> Self {
        Self {
            verb,
            group: group.cloned(),
            items: 0,
            call: Box::new(call),
        }
    }

    /// Makes the call on a store; nothing happens before the answer is polled. Each time is a call of its own, with the
    /// same arguments: the same not-after as well.
    ///
    /// # Errors
    /// Those of the call. `Unsupported`, with nothing changed, for a step of a sweep on a store that has none.
    pub fn of(&self, store: Arc<dyn Store>) -> Running<T> {
        (self.call)(store)
    }
}

impl<T> fmt::Debug for Ask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("verb", &self.verb)
            .field("group", &self.group)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}

/// Who takes the single steps of a sweep.
pub enum Steps<'a> {
    /// They go around like every call, when the store inside has any; a whole pass is made of them.
    Around,
    /// The store inside, past the one around it. A whole pass is then one call that goes around.
    Inside(Option<&'a dyn SweepSteps>),
}

impl fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Around => "Around",
            Self::Inside(Some(_)) => "Inside",
            Self::Inside(None) => "None",
        })
    }
}

/// A store around another. Whoever implements it is a [`Store`].
///
/// What a call costs on top: one clone of its arguments and three small allocations.
pub trait Around: Sized + Send + Sync + 'static {
    /// The store inside.
    fn store(&self) -> Arc<dyn Store>;

    /// What becomes of a call: most answer `ask.of(self.store()).await`, and do something before it or after.
    ///
    /// # Errors
    /// Those of the call, and what goes wrong around it.
    fn around<T: Send + 'static>(&self, ask: Ask<T>) -> impl Future<Output = Result<T>> + Send;

    /// As [`Store::place`]: that of the store inside, unless said otherwise.
    fn place(&self) -> String {
        self.store().place()
    }

    /// As [`Store::health`]: that of the store inside, unless said otherwise.
    fn health(&self) -> Health {
        self.store().health()
    }

    /// As [`Store::node_of`]: that of the store inside, unless said otherwise.
    fn node_of(&self, group: &Group) -> Option<String> {
        self.store().node_of(group)
    }

    /// Who takes the single steps of a sweep.
    fn steps(&self) -> Steps<'_> {
        Steps::Around
    }

    /// As [`Store::examine`]: by the store inside, unless said otherwise.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send {
        async { self.store().examine().await }
    }

    /// As [`Store::close`]: closes the store inside, unless said otherwise.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async { self.store().close().await }
    }
}

/// The calls of one trait. `on` leads from the store inside to whoever has the methods; every call is about a group.
macro_rules! table {
    (
        impl $trait:ident, on $on:ident;
        $($verb:ident: $name:ident(group $(, $argument:ident: $type:ty)*) -> $answer:ty;)+
    ) => {
        #[async_trait]
        impl<W: Around> $trait for W {
            $(
                async fn $name(&self, group: &Group $(, $argument: $type)*) -> Result<$answer> {
                    let items = 0 $(+ $argument.items())*;
                    let arguments = Arc::new((group.clone(), $($argument.own(),)*));
                    let ask = Ask::new(Verb::$verb, Some(group), move |store| {
                        let arguments = Arc::clone(&arguments);
                        Box::pin(async move {
                            let (group, $($argument,)*) = &*arguments;
                            $on(&store)?.$name(group, $(Argument::lend($argument)),*).await
                        })
                    });
                    self.around(Ask { items, ..ask }).await
                }
            )+
        }
    };
}

fn whole(store: &Arc<dyn Store>) -> Result<&dyn Store> {
    Ok(&**store)
}

fn steps(store: &Arc<dyn Store>) -> Result<&dyn SweepSteps> {
    let none = || Error::new(ErrorKind::Unsupported, "this store does not sweep");
    store.steps().ok_or_else(none)
}

table! { impl MembershipStore, on whole;
    Join: join(group, join: &Join, call: Call) -> Joined;
    Beat: beat(group, beats: &[Beat]) -> Beaten;
    End: end(group, tenure: &TenureId, by: EndBy, call: Call) -> EndReason;
    Member: member(group, member: &MemberId) -> Option<Member>;
    Members: members(group, page: &PageRequest) -> Page<Member>;
}

table! { impl RegistryStore, on whole;
    Claim: claim(group, registry: &RegistryName, tenure: &TenureId, keys: &[Key], mode: ClaimMode, call: Call) -> Claimed;
    ReleaseClaim: release_claim(group, registry: &RegistryName, key: &Key, tenure: &TenureId, call: Call) -> ();
    ClaimOf: claim_of(group, registry: &RegistryName, key: &Key) -> Option<Claim>;
    Claims: claims(group, registry: &RegistryName, owner: Option<&MemberId>, page: &PageRequest) -> Page<Claim>;
}

table! { impl LeaseStore, on whole;
    Acquire: acquire(group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Acquired;
    ReleaseLeases: release_leases(
        group, tenure: &TenureId, leases: &[(LeaseName, Token)], to: Option<&MemberId>, call: Call
    ) -> GivenUp;
    LeaseOf: lease_of(group, lease: &LeaseName) -> Option<Lease>;
    Leases: leases(group, holder: Option<&MemberId>, page: &PageRequest) -> Page<Lease>;
    HeldLeases: held_leases(group, tenure: &TenureId, page: &PageRequest) -> HeldLeases;
}

table! { impl TargetStore, on whole;
    PutTarget: put_target(group, target: &LeaseName, spec: TargetSpec, call: Call) -> bool;
    RemoveTarget: remove_target(group, target: &LeaseName, call: Call) -> bool;
    Target: target(group, target: &LeaseName) -> Option<Target>;
    Targets: targets(group, page: &PageRequest) -> Page<Target>;
}

table! { impl SessionStore, on whole;
    Attach: attach(group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Attached;
    Detach: detach(group, tenure: &TenureId, detaches: &[Detach], call: Call) -> Vec<DetachOutcome>;
    PatchSession: patch_session(
        group, session: &SessionId, tenure: Option<&TenureId>, data: &Data, call: Call
    ) -> PatchOutcome;
    DeleteSession: delete_session(group, session: &SessionId, call: Call) -> DeleteOutcome;
    Session: session(group, session: &SessionId) -> Option<Session>;
    SessionByAlias: session_by_alias(group, alias: &Alias) -> Option<Session>;
    Sessions: sessions(group, state: Option<SessionState>, page: &PageRequest) -> Page<Session>;
    Orphans: orphans(group, overdue: Duration, limit: u32) -> Orphans;
    SessionStats: session_stats(group) -> SessionStats;
}

table! { impl EventLog, on whole;
    Events: events(group, query: &EventQuery) -> EventPage;
    WaitForEvents: wait_for_events(group, after: EventId, patience: Duration) -> ();
}

table! { impl SweepSteps, on steps;
    Tick: tick(group) -> GroupStatus;
    EndLapsed: end_lapsed(group, limit: u32, call: Call) -> EndedBatch;
    Spare: spare(group, limit: u32, call: Call) -> EndedBatch;
    Release: release(group, request: &ReleaseRequest, call: Call) -> ReleasedBatch;
    Reap: reap(group, request: &ReleaseRequest, call: Call) -> ReapedBatch;
    Reconcile: reconcile(group, request: &ReconcileRequest, call: Call) -> Reconciled;
    Doomed: doomed(group, limit: u32) -> Vec<Doomed>;
    ForgetGroup: forget_group(group, call: Call) -> bool;
}

fn mirror(store: &Arc<dyn Store>) -> Result<&dyn RosterMirror> {
    let none = || Error::new(ErrorKind::Unsupported, "this store mirrors no roster");
    store.mirror().ok_or_else(none)
}

table! { impl RosterMirror, on mirror;
    PutProviders: put_providers(group, puts: &[Put], call: Call) -> Vec<PutOutcome>;
    Seat: seat(group, providers: &[ProviderId], stale_after: Duration, beat: bool, call: Call) -> Vec<Seated>;
    Heartbeat: heartbeat(group, heartbeats: &[Heartbeat]) -> Heartbeats;
    Available: available(group, page: &PageRequest) -> Ranked;
    Availability: availability(group, snapshot: Duration) -> Availability;
    Look: look(group, providers: &[ProviderId]) -> Looked;
    Rows: rows(group, page: &PageRequest) -> Rows;
    RosterStats: roster_stats(group) -> Stats;
    Stamp: stamp(group) -> Stamp;
    PendingOffline: pending_offline(group, limit: u32, force: bool, call: Call) -> Pending;
    OfflineDone: offline_done(group, tenures: &[TenureId], call: Call) -> u64;
    PutRosterSettings: put_roster_settings(group, settings: &RosterSettings, over: Over, call: Call) -> bool;
    RosterSettings: roster_settings(group) -> Option<RosterSettings>;
    Retime: retime(group, limit: u32, call: Call) -> bool;
    TakeTurn: take_turn(group, request: &TurnRequest, call: Call) -> Turn;
    EndTurn: end_turn(group, task: Task, holder: &str, done: bool, call: Call) -> ();
    MarkSeeded: mark_seeded(group, since: StoreTime, call: Call) -> bool;
    VerifyRoster: verify_roster(group, request: &ReconcileRequest, call: Call) -> Verified;
}

#[async_trait]
impl<W: Around> Sweep for W {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        match Around::steps(self) {
            Steps::Around if self.store().steps().is_none() => None,
            Steps::Around => Some(self),
            Steps::Inside(steps) => steps,
        }
    }
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        let about = group.clone();
        let ask = Ask::new(Verb::Status, Some(group), move |store| {
            let group = about.clone();
            Box::pin(async move { store.status(&group).await })
        });
        self.around(ask).await
    }
    async fn sweep(&self, group: &Group, request: &SweepRequest, pass: &str, call: Call) -> Result<SweepReport> {
        if let (Steps::Around, Some(steps)) = (Around::steps(self), Sweep::steps(self)) {
            return run_pass(steps, group, request, pass, call).await;
        }
        let arguments = Arc::new((group.clone(), request.clone(), pass.to_owned()));
        let ask = Ask::new(Verb::Sweep, Some(group), move |store| {
            let arguments = Arc::clone(&arguments);
            Box::pin(async move {
                let (group, request, pass) = &*arguments;
                store.sweep(group, request, pass, call).await
            })
        });
        self.around(ask).await
    }
    async fn settle(&self, group: Option<&Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        let about = group.cloned();
        let ask = Ask::new(Verb::Settle, group, move |store| {
            let group = about.clone();
            Box::pin(async move { store.settle(group.as_ref(), cause, call).await })
        });
        self.around(ask).await
    }
}

#[async_trait]
impl<W: Around> Store for W {
    fn place(&self) -> String {
        Around::place(self)
    }
    fn health(&self) -> Health {
        Around::health(self)
    }
    fn node_of(&self, group: &Group) -> Option<String> {
        Around::node_of(self, group)
    }
    fn mirror(&self) -> Option<&dyn RosterMirror> {
        self.store().mirror().is_some().then_some(self)
    }
    async fn now(&self) -> Result<StoreTime> {
        let ask = Ask::new(Verb::Now, None, |store| Box::pin(async move { store.now().await }));
        self.around(ask).await
    }
    /// A probe goes around as the tick that it mostly is.
    async fn probe(&self, patience: Duration) -> Result<Probed> {
        let group = Group::new(PROBE_GROUP)?;
        let ask = Ask::new(Verb::Tick, Some(&group), move |store| {
            Box::pin(async move { store.probe(patience).await })
        });
        self.around(ask).await
    }
    async fn groups(&self) -> Result<Vec<Group>> {
        let ask = Ask::new(Verb::Groups, None, |store| {
            Box::pin(async move { store.groups().await })
        });
        self.around(ask).await
    }
    async fn newest_events(&self, groups: &[Group]) -> Result<Vec<(Group, EventId)>> {
        let owned = Arc::new(groups.to_vec());
        let ask = Ask::new(Verb::NewestEvents, None, move |store| {
            let groups = Arc::clone(&owned);
            Box::pin(async move { store.newest_events(&groups).await })
        });
        let items = groups.len();
        self.around(Ask { items, ..ask }).await
    }
    async fn find_groups(&self) -> Result<bool> {
        let ask = Ask::new(Verb::FindGroups, None, |store| {
            Box::pin(async move { store.find_groups().await })
        });
        self.around(ask).await
    }
    async fn examine(&self) -> Vec<Finding> {
        Around::examine(self).await
    }
    async fn close(&self) {
        Around::close(self).await;
    }
}

#[cfg(test)]
mod tests;
