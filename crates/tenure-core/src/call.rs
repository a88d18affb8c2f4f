//! A call of a store as a value: the operation, its group, and its deadline.
//!
//! Each call is one struct beside its noun ([`Acquire`] in `lease.rs`). The table in this file lists all calls with
//! their replies. A store handles a [`StoreRequest`] in one method ([`Backend::call`]), so code that counts, delays,
//! drops, records or forwards calls is written once. The typed methods for callers are also written once, on the trait
//! of the noun.
//!
//! [`Limits`], beside each struct, checks a call and splits it into parts that fit one step. Both happen above the
//! stores ([`make`]).

mod limits;
mod parts;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub use self::limits::Limits;
pub use self::parts::{Parts, make};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventPage, EventQuery, WaitForEvents};
use crate::id::Group;
use crate::lease::{
    Acquire, Acquired, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, ReleaseLeases, ReleasedLeases, RevokeLease,
    Revoked, WaitForGrants, WaitingTurn, Withdraw, Withdrawn,
};
use crate::ledger::RosterSettings;
use crate::membership::{BeatReplies, Beats, End, EndReason, Join, Joined, Member, MemberOf, Members, SetLabels};
use crate::memory::{Decide, GroupModel};
use crate::pulse::{BeatPulse, DueGroups, ListDue, Pulsed};
use crate::registry::{Claim, ClaimKeys, ClaimOf, Claimed, Claims, ReleaseClaim};
use crate::roster::{
    Availability, BeatProviders, CountAvailable, CountRoster, EndTurn, EnsureTenures, EnsuredTenure, FoundProviders,
    Heartbeats, ListAvailable, ListPending, ListRows, LookUp, MarkSeeded, MirrorStatus, OfflineDone, Pending,
    PutOutcome, PutProviders, PutRosterSettings, Ranked, ReadMirrorStatus, ReadSettings, Retime, Rows, Stats, Turn,
    TurnRequest, Verified, VerifyRoster,
};
use crate::session::{
    Attached, Attaches, CountSessions, DeleteOutcome, DeleteSession, DetachOutcome, Detaches, ListOrphans, Orphans,
    PatchOutcome, PatchSession, Session, SessionByAlias, SessionOf, SessionStats, Sessions,
};
use crate::store::{Backend, Call, FindGroups, ListGroups, Now, Page, Probe, Probed};
use crate::sweep::{
    Doomed, EndLapsed, EndedBatch, ForgetGroup, GroupStatus, ListDoomed, Pass, Reap, ReapedBatch, Reconcile,
    Reconciled, Release, ReleasedBatch, Settle, SettleReport, Spare, Status, SweepReport, Tick,
};
use crate::target::{PutTarget, RemoveTarget, Target, TargetOf, Targets};
use crate::time::StoreTime;

/// A request to a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreRequest {
    /// The group; `None` for a request to the whole store.
    pub group: Option<Group>,
    /// The operation.
    pub op: Op,
    /// The deadline. Beats and reads ignore it.
    pub call: Call,
}

/// An operation of a store; one struct for each.
pub trait Request: Sized + Send + 'static {
    /// The name of the operation.
    const VERB: Verb;
    /// The type of its reply.
    type Reply: Send + 'static;
    /// The scope: a group, or optionally the whole store.
    type Scope: Scope;

    /// Wraps the operation in [`Op`].
    fn op(self) -> Op;

    /// Unwraps the reply; `None` if it belongs to another operation.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

/// The scope of an operation: a [`Group`], or `Option<Group>` if it may be the whole store.
pub trait Scope: Send + Sync {
    /// Takes the scope from the group of a [`StoreRequest`].
    ///
    /// # Errors
    /// `Internal` if the operation requires a group and has none.
    fn of(group: &Option<Group>) -> Result<&Self>;
}

impl Scope for Group {
    fn of(group: &Option<Group>) -> Result<&Self> {
        let none = || Error::new(ErrorKind::Internal, "a call about a group names no group");
        group.as_ref().ok_or_else(none)
    }
}

impl Scope for Option<Group> {
    fn of(group: &Option<Group>) -> Result<&Self> {
        Ok(group)
    }
}

/// Serves one operation of a store.
#[async_trait]
pub trait Serve<R: Request>: Send + Sync {
    /// Serves a request that is within its limits ([`Op::check`]) and fits one step of this store.
    ///
    /// # Errors
    /// Those of the typed method. [`Outcome::Unchanged`](crate::error::Outcome) means nothing happened.
    async fn serve(&self, scope: &R::Scope, request: R, call: Call) -> Result<R::Reply>;
}

/// Maps the first word of a table row.
macro_rules! is_read {
    (read) => {
        true
    };
    (step) => {
        false
    };
}

/// Maps the last word of a table row: `limited` has its `Limits` beside the noun, `paged` has those of its page, and no
/// word means no limits.
macro_rules! limits {
    ($request:ident limited) => {};
    ($request:ident paged) => {
        impl Limits for $request {
            fn check(&self, _: Duration) -> Result<()> {
                self.page.check()
            }
        }
    };
    ($request:ident) => {
        impl Limits for $request {}
    };
}

/// Generates from the table of all calls every item with a case for each call. Each section is served by all stores or
/// by those of one kind.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $section:ident($scope:ty), served by $serves:ident {
            $($kind:ident $verb:ident: $request:ident -> $reply:ty $(, $limits:ident)?;)+
        }
    )+) => {
        /// An operation of a store.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each is the method of that name, and is described there")]
        pub enum Op { $($($verb($request),)+)+ }

        /// The reply of a store.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each is the answer to the call of that name")]
        pub enum Reply { $($($verb($reply),)+)+ }

        /// The name of an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each is the method of that name, and is described there")]
        pub enum Verb { $($($verb,)+)+ }

        #[derive(Debug, Clone, Copy)]
        #[expect(non_camel_case_types, reason = "each is the function of that name")]
        enum Section { $($section,)+ }

        impl Op {
            /// The name of the operation.
            #[must_use]
            pub fn verb(&self) -> Verb {
                match self { $($(Self::$verb(_) => Verb::$verb,)+)+ }
            }

            /// Whether the operation changes nothing, not even the tick.
            #[must_use]
            pub fn is_read(&self) -> bool {
                match self { $($(Self::$verb(_) => is_read!($kind),)+)+ }
            }

            /// Rejects a call that exceeds a limit.
            ///
            /// # Errors
            /// `Invalid`, with the value and the limit.
            pub fn check(&self, max_ttl: Duration) -> Result<()> {
                match self { $($(Self::$verb(request) => Limits::check(request, max_ttl),)+)+ }
            }

            /// The number of items: beats, keys, leases. 0 for a call without a list.
            #[must_use]
            pub fn items(&self) -> usize {
                match self { $($(Self::$verb(request) => request.items(),)+)+ }
            }

            fn empty_reply(&self) -> Option<Reply> {
                match self { $($(Self::$verb(request) => request.empty_reply().map(Reply::$verb),)+)+ }
            }

            fn split_off(&mut self, at: usize) -> Option<Self> {
                match self {
                    $($(Self::$verb(request) if request.items() > at => Some(Self::$verb(request.split_off(at)?)),)+)+
                    _ => None,
                }
            }

            /// Applies the operation as a step to the model of its group.
            pub(crate) fn step(&self, model: &mut GroupModel, call: Call, now: StoreTime) -> Result<Reply> {
                match self { $($(Self::$verb(request) => model.step(request, call, now).map(Reply::$verb),)+)+ }
            }

            /// Reads the reply from the model of its group.
            pub(crate) fn read(&self, model: &GroupModel, now: StoreTime) -> Result<Reply> {
                match self { $($(Self::$verb(request) => model.read(request, now).map(Reply::$verb),)+)+ }
            }

            fn section(&self) -> Section {
                match self { $($(Self::$verb(_))|+ => Section::$section,)+ }
            }
        }

        /// Adds the reply of the next part to the replies so far.
        fn add(all: Reply, next: Reply) -> Reply {
            match (all, next) {
                $($((Reply::$verb(all), Reply::$verb(next)) => Reply::$verb(<$request as Limits>::add(all, next)),)+)+
                // Both replies have the same kind; `send` rejects any other.
                (_, next) => next,
            }
        }

        $($(limits! { $request $($limits)? })+)+

        $($(
            impl Request for $request {
                const VERB: Verb = Verb::$verb;
                type Reply = $reply;
                type Scope = $scope;

                fn op(self) -> Op {
                    Op::$verb(self)
                }
                fn reply(reply: Reply) -> Option<$reply> {
                    match reply {
                        Reply::$verb(reply) => Some(reply),
                        _ => None,
                    }
                }
            }
        )+)+

        $(
            $(#[$doc])*
            pub trait $serves: $(Serve<$request> +)+ {}
            impl<S: $(Serve<$request> +)+> $serves for S {}

            $(#[$doc])*
            ///
            /// # Errors
            /// Those of the call; `Unsupported`, with nothing changed, for one that is none of these.
            pub async fn $section(store: &impl $serves, request: StoreRequest) -> Result<Reply> {
                let StoreRequest { group, op, call } = request;
                match op {
                    $(Op::$verb(request) => {
                        let reply = store.serve(Scope::of(&group)?, request, call).await?;
                        Ok(Reply::$verb(reply))
                    })+
                    op => Err(unsupported(&op)),
                }
            }
        )+
    };
}

calls! {
    /// The calls that every store serves.
    nouns(Group), served by ServeNouns {
        step Join: Join -> Joined, limited;
        step Beat: Beats -> BeatReplies, limited;
        step End: End -> EndReason, limited;
        step SetLabels: SetLabels -> ();
        read Member: MemberOf -> Option<Member>;
        read Members: Members -> Page<Member>, paged;

        step Claim: ClaimKeys -> Claimed, limited;
        step ReleaseClaim: ReleaseClaim -> ();
        read ClaimOf: ClaimOf -> Option<Claim>;
        read Claims: Claims -> Page<Claim>, paged;

        step Acquire: Acquire -> Acquired, limited;
        step ReleaseLeases: ReleaseLeases -> ReleasedLeases, limited;
        step Withdraw: Withdraw -> Withdrawn;
        step RevokeLease: RevokeLease -> Revoked;
        read LeaseOf: LeaseOf -> Option<Lease>;
        read Leases: Leases -> Page<Lease>, paged;
        read HeldLeases: LeasesOf -> HeldLeases, paged;

        step PutTarget: PutTarget -> bool, limited;
        step RemoveTarget: RemoveTarget -> bool;
        read Target: TargetOf -> Option<Target>;
        read Targets: Targets -> Page<Target>, paged;

        step Attach: Attaches -> Attached, limited;
        step Detach: Detaches -> Vec<DetachOutcome>, limited;
        step PatchSession: PatchSession -> PatchOutcome, limited;
        step DeleteSession: DeleteSession -> DeleteOutcome;
        read Session: SessionOf -> Option<Session>;
        read SessionByAlias: SessionByAlias -> Option<Session>;
        read Sessions: Sessions -> Page<Session>, limited;
        read Orphans: ListOrphans -> Orphans, limited;
        read SessionStats: CountSessions -> SessionStats;

        read Events: EventQuery -> EventPage, limited;
        read WaitForEvents: WaitForEvents -> ();
        read Status: Status -> GroupStatus;
    }

    /// The calls on the whole store, which every store serves.
    whole(Option<Group>), served by ServeWhole {
        read Now: Now -> StoreTime;
        step Probe: Probe -> Probed;
        read Groups: ListGroups -> Vec<Group>;
        read WaitForGrants: WaitForGrants -> Vec<WaitingTurn>;
        step FindGroups: FindGroups -> bool;
        step Settle: Settle -> SettleReport;
    }

    /// The calls on the service of the whole store, for a store that decides.
    service(Option<Group>), served by ServeService {
        step BeatPulse: BeatPulse -> Pulsed;
        read Due: ListDue -> DueGroups, limited;
    }

    /// The single steps of a sweep, for a store that its users sweep.
    sweep(Group), served by ServeSweep {
        step Tick: Tick -> GroupStatus;
        step EndLapsed: EndLapsed -> EndedBatch;
        step Spare: Spare -> EndedBatch;
        step Release: Release -> ReleasedBatch;
        step Reap: Reap -> ReapedBatch;
        step Reconcile: Reconcile -> Reconciled, limited;
        read Doomed: ListDoomed -> Vec<Doomed>;
        step ForgetGroup: ForgetGroup -> bool;
    }

    /// The mirror of a roster, for a store that has one.
    mirror(Group), served by ServeMirror {
        step PutProviders: PutProviders -> Vec<PutOutcome>, limited;
        step EnsureTenures: EnsureTenures -> Vec<EnsuredTenure>, limited;
        step Heartbeat: BeatProviders -> Heartbeats, limited;
        read Available: ListAvailable -> Ranked, paged;
        read Availability: CountAvailable -> Availability;
        read Look: LookUp -> FoundProviders, limited;
        read Rows: ListRows -> Rows, paged;
        read RosterStats: CountRoster -> Stats;
        read MirrorStatus: ReadMirrorStatus -> MirrorStatus;
        step PendingOffline: ListPending -> Pending, limited;
        step OfflineDone: OfflineDone -> u64, limited;
        step PutRosterSettings: PutRosterSettings -> bool, limited;
        read RosterSettings: ReadSettings -> Option<RosterSettings>;
        step Retime: Retime -> bool, limited;
        step TakeTurn: TurnRequest -> Turn, limited;
        step EndTurn: EndTurn -> (), limited;
        step MarkSeeded: MarkSeeded -> bool;
        step VerifyRoster: VerifyRoster -> Verified, limited;
    }

    /// A whole sweep, for a remote daemon.
    remote(Group), served by ServeRemote {
        step Sweep: Pass -> SweepReport;
    }
}

/// Serves a call in a store that decides: every call except a whole sweep, which consists of its steps.
///
/// # Errors
/// Those of the call; `Unsupported` for a whole sweep, with nothing changed.
pub async fn serve_all<S>(store: &S, request: StoreRequest) -> Result<Reply>
where
    S: ServeNouns + ServeWhole + ServeService + ServeSweep + ServeMirror,
{
    match request.op.section() {
        Section::nouns => nouns(store, request).await,
        Section::whole => whole(store, request).await,
        Section::service => service(store, request).await,
        Section::sweep => sweep(store, request).await,
        Section::mirror => mirror(store, request).await,
        Section::remote => Err(unsupported(&request.op)),
    }
}

/// Serves a call in a remote daemon's client.
///
/// # Errors
/// Those of the call; `Unsupported` for a call on the service of the store, a sweep step or a mirror call, with nothing
/// changed.
pub async fn serve_remote<S>(store: &S, request: StoreRequest) -> Result<Reply>
where
    S: ServeNouns + ServeWhole + ServeRemote,
{
    match request.op.section() {
        Section::nouns => nouns(store, request).await,
        Section::whole => whole(store, request).await,
        Section::remote => remote(store, request).await,
        Section::service | Section::sweep | Section::mirror => Err(unsupported(&request.op)),
    }
}

fn unsupported(op: &Op) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this store does not serve the call {}", op.verb()),
    )
}

/// Sends a typed call: rejects it if it exceeds a limit, sends it in as many parts as the store needs, and combines the
/// replies.
pub(crate) async fn send<S: Backend + ?Sized, R: Request>(
    store: &S,
    group: Option<&Group>,
    request: R,
    call: Call,
) -> Result<R::Reply> {
    let (group, op) = (group.cloned(), request.op());
    let reply = make(store, StoreRequest { group, op, call }).await?;
    let mixed_up = || {
        Error::new(
            ErrorKind::Internal,
            format!("the reply to {} belongs to another call", R::VERB),
        )
    };
    R::reply(reply).ok_or_else(mixed_up)
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
