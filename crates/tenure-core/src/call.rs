//! A call of a store as a value: what is asked, of which group, and until when it may take effect.
//!
//! Each call is one struct beside its noun ([`Acquire`] in `lease.rs`); the table in this file lists them all, each with
//! what it is answered with. A store answers an [`Ask`] in one method ([`Backend::call`]), so
//! whoever counts, delays, loses, records or forwards calls does so in one place. The typed methods that callers use are
//! written once, on the trait of the noun.
//!
//! The limits of a call stand beside its noun, too ([`Limits`]), with how it is cut into parts where it is too long for one
//! step. Both are applied above the stores ([`make`]).

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
use crate::lease::{Acquire, Acquired, GivenUp, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, ReleaseLeases};
use crate::ledger::RosterSettings;
use crate::membership::{Beaten, Beats, End, EndReason, Join, Joined, Member, MemberOf, Members};
use crate::memory::{Decide, GroupModel};
use crate::registry::{Claim, ClaimKeys, ClaimOf, Claimed, Claims, ReleaseClaim};
use crate::roster::{
    Availability, BeatProviders, CountAvailable, CountRoster, EndTurn, Heartbeats, ListAvailable, ListPending,
    ListRows, LookUp, Looked, MarkSeeded, OfflineDone, Pending, PutOutcome, PutProviders, PutRosterSettings, Ranked,
    ReadSettings, ReadStamp, Retime, Rows, Seat, Seated, Stamp, Stats, Turn, TurnRequest, Verified, VerifyRoster,
};
use crate::session::{
    Attached, Attaches, CountSessions, DeleteOutcome, DeleteSession, DetachOutcome, Detaches, ListOrphans, Orphans,
    PatchOutcome, PatchSession, Session, SessionByAlias, SessionOf, SessionStats, Sessions,
};
use crate::store::{Backend, Call, FindGroups, ListGroups, NewestEvents, Now, Page, Probe, Probed};
use crate::sweep::{
    Doomed, EndLapsed, EndedBatch, ForgetGroup, GroupStatus, ListDoomed, Pass, Reap, ReapedBatch, Reconcile,
    Reconciled, Release, ReleasedBatch, Settle, SettleReport, Spare, Status, SweepReport, Tick,
};
use crate::target::{PutTarget, RemoveTarget, Target, TargetOf, Targets};
use crate::time::StoreTime;

/// A call of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The group that it is about; `None` when it is about the whole store.
    pub group: Option<Group>,
    /// What is asked.
    pub op: Op,
    /// Until when it may take effect. Beats and reads do not look at it.
    pub call: Call,
}

/// What is asked of a store: one struct for each of its calls.
pub trait Request: Sized + Send + 'static {
    /// Which call it is.
    const VERB: Verb;
    /// What it is answered with.
    type Reply: Send + 'static;
    /// What it is about: a group, or the whole store where it may be.
    type About: About;

    /// Wraps it as one of all calls.
    fn op(self) -> Op;

    /// Takes its reply out of one of any kind; `None` when that answers another call.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

/// What a call is about: a [`Group`], or `Option<Group>` where it may be about the whole store.
pub trait About: Send + Sync {
    /// Takes it from an [`Ask`].
    ///
    /// # Errors
    /// `Internal` for a call about a group that names none.
    fn of(group: &Option<Group>) -> Result<&Self>;
}

impl About for Group {
    fn of(group: &Option<Group>) -> Result<&Self> {
        let none = || Error::new(ErrorKind::Internal, "a call about a group names no group");
        group.as_ref().ok_or_else(none)
    }
}

impl About for Option<Group> {
    fn of(group: &Option<Group>) -> Result<&Self> {
        Ok(group)
    }
}

/// How a store answers one of its calls.
#[async_trait]
pub trait Serve<R: Request>: Send + Sync {
    /// Answers it. The request is within its limits ([`Op::check`]) and has at most as many items as one step of this store
    /// takes.
    ///
    /// # Errors
    /// Those of the typed method. After one with [`Outcome::Unchanged`](crate::error::Outcome) nothing happened.
    async fn serve(&self, about: &R::About, request: R, call: Call) -> Result<R::Reply>;
}

/// Of the word before a call in the table.
macro_rules! is_read {
    (read) => {
        true
    };
    (step) => {
        false
    };
}

/// Of the word after a call in the table: the limits of a `limited` call stand beside its noun, a `paged` one has those of its
/// page, every other call has none.
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

/// Makes, from the table of all calls, what has a case for each of them. The calls of a section are served by all stores or
/// by those of one kind.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $section:ident($about:ty), served by $serves:ident {
            $($kind:ident $verb:ident: $request:ident -> $reply:ty $(, $limits:ident)?;)+
        }
    )+) => {
        /// What is asked of a store.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each is the method of that name, and is described there")]
        pub enum Op { $($($verb($request),)+)+ }

        /// What a store answers.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each is the answer to the call of that name")]
        pub enum Reply { $($($verb($reply),)+)+ }

        /// Which call of a store, by the name of its method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each is the method of that name, and is described there")]
        pub enum Verb { $($($verb,)+)+ }

        #[derive(Debug, Clone, Copy)]
        #[expect(non_camel_case_types, reason = "each is the function of that name")]
        enum Section { $($section,)+ }

        impl Op {
            /// Which call it is.
            #[must_use]
            pub fn verb(&self) -> Verb {
                match self { $($(Self::$verb(_) => Verb::$verb,)+)+ }
            }

            /// Whether it changes nothing, not even the tick.
            #[must_use]
            pub fn is_read(&self) -> bool {
                match self { $($(Self::$verb(_) => is_read!($kind),)+)+ }
            }

            /// Refuses a call that breaks a limit.
            ///
            /// # Errors
            /// `Invalid`, with the value and the limit.
            pub fn check(&self, max_ttl: Duration) -> Result<()> {
                match self { $($(Self::$verb(ask) => Limits::check(ask, max_ttl),)+)+ }
            }

            /// How many items it lists: beats, keys, leases. 0 for a call that takes no list.
            #[must_use]
            pub fn items(&self) -> usize {
                match self { $($(Self::$verb(ask) => ask.items(),)+)+ }
            }

            fn answer_to_nothing(&self) -> Option<Reply> {
                match self { $($(Self::$verb(ask) => ask.answer_to_nothing().map(Reply::$verb),)+)+ }
            }

            fn split_off(&mut self, at: usize) -> Option<Self> {
                match self {
                    $($(Self::$verb(ask) if ask.items() > at => Some(Self::$verb(ask.split_off(at)?)),)+)+
                    _ => None,
                }
            }

            /// Takes it as a step on the model of its group.
            pub(crate) fn step(&self, model: &mut GroupModel, call: Call, now: StoreTime) -> Result<Reply> {
                match self { $($(Self::$verb(ask) => model.step(ask, call, now).map(Reply::$verb),)+)+ }
            }

            /// Reads it from the model of its group.
            pub(crate) fn read(&self, model: &GroupModel, now: StoreTime) -> Result<Reply> {
                match self { $($(Self::$verb(ask) => model.read(ask, now).map(Reply::$verb),)+)+ }
            }

            fn section(&self) -> Section {
                match self { $($(Self::$verb(_))|+ => Section::$section,)+ }
            }
        }

        /// The answer to a call from those to its parts so far and to the next one.
        fn add(all: Reply, next: Reply) -> Reply {
            match (all, next) {
                $($((Reply::$verb(all), Reply::$verb(next)) => Reply::$verb(<$request as Limits>::add(all, next)),)+)+
                // A call has one kind of answer; `ask` refuses another one.
                (_, next) => next,
            }
        }

        $($(limits! { $request $($limits)? })+)+

        $($(
            impl Request for $request {
                const VERB: Verb = Verb::$verb;
                type Reply = $reply;
                type About = $about;

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
            pub async fn $section(store: &impl $serves, ask: Ask) -> Result<Reply> {
                let call = ask.call;
                match ask.op {
                    $(Op::$verb(request) => {
                        let reply = store.serve(About::of(&ask.group)?, request, call).await?;
                        Ok(Reply::$verb(reply))
                    })+
                    op => Err(unsupported(&op)),
                }
            }
        )+
    };
}

calls! {
    /// The calls that every store answers.
    nouns(Group), served by ServeNouns {
        step Join: Join -> Joined, limited;
        step Beat: Beats -> Beaten, limited;
        step End: End -> EndReason;
        read Member: MemberOf -> Option<Member>;
        read Members: Members -> Page<Member>, paged;

        step Claim: ClaimKeys -> Claimed, limited;
        step ReleaseClaim: ReleaseClaim -> ();
        read ClaimOf: ClaimOf -> Option<Claim>;
        read Claims: Claims -> Page<Claim>, paged;

        step Acquire: Acquire -> Acquired, limited;
        step ReleaseLeases: ReleaseLeases -> GivenUp, limited;
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
        read Sessions: Sessions -> Page<Session>, paged;
        read Orphans: ListOrphans -> Orphans, limited;
        read SessionStats: CountSessions -> SessionStats;

        read Events: EventQuery -> EventPage, limited;
        read WaitForEvents: WaitForEvents -> ();
        read Status: Status -> GroupStatus;
    }

    /// The calls about the whole store, which every store answers.
    whole(Option<Group>), served by ServeWhole {
        read Now: Now -> StoreTime;
        step Probe: Probe -> Probed;
        read Groups: ListGroups -> Vec<Group>;
        read NewestEvents: NewestEvents -> Vec<(Group, crate::event::EventId)>, limited;
        step FindGroups: FindGroups -> bool;
        step Settle: Settle -> SettleReport;
    }

    /// The single steps of a sweep, of a store that is swept by its users.
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

    /// The mirror of a roster, of a store that has one.
    mirror(Group), served by ServeMirror {
        step PutProviders: PutProviders -> Vec<PutOutcome>, limited;
        step Seat: Seat -> Vec<Seated>, limited;
        step Heartbeat: BeatProviders -> Heartbeats, limited;
        read Available: ListAvailable -> Ranked, paged;
        read Availability: CountAvailable -> Availability;
        read Look: LookUp -> Looked, limited;
        read Rows: ListRows -> Rows, paged;
        read RosterStats: CountRoster -> Stats;
        read Stamp: ReadStamp -> Stamp;
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

    /// A whole pass of a sweep, of a store that is a daemon elsewhere: that sweeps.
    elsewhere(Group), served by ServeElsewhere {
        step Sweep: Pass -> SweepReport;
    }
}

/// Answers a call of a store that decides itself: all but a pass, which is made of its steps.
///
/// # Errors
/// Those of the call; `Unsupported`, with nothing changed, for a pass.
pub async fn serve_all<S>(store: &S, ask: Ask) -> Result<Reply>
where
    S: ServeNouns + ServeWhole + ServeSweep + ServeMirror,
{
    match ask.op.section() {
        Section::nouns => nouns(store, ask).await,
        Section::whole => whole(store, ask).await,
        Section::sweep => sweep(store, ask).await,
        Section::mirror => mirror(store, ask).await,
        Section::elsewhere => Err(unsupported(&ask.op)),
    }
}

/// Answers a call of a store that is a daemon elsewhere.
///
/// # Errors
/// Those of the call; `Unsupported`, with nothing changed, for a step of a sweep and for the mirror.
pub async fn serve_elsewhere<S>(store: &S, ask: Ask) -> Result<Reply>
where
    S: ServeNouns + ServeWhole + ServeElsewhere,
{
    match ask.op.section() {
        Section::nouns => nouns(store, ask).await,
        Section::whole => whole(store, ask).await,
        Section::elsewhere => elsewhere(store, ask).await,
        Section::sweep | Section::mirror => Err(unsupported(&ask.op)),
    }
}

fn unsupported(op: &Op) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this store does not answer the call {}", op.verb()),
    )
}

/// Makes a typed call: refuses what breaks a limit before anything is sent, makes it in as many parts as the store needs,
/// and adds up what they come to.
pub(crate) async fn ask<S: Backend + ?Sized, R: Request>(
    store: &S,
    group: Option<&Group>,
    request: R,
    call: Call,
) -> Result<R::Reply> {
    let (group, op) = (group.cloned(), request.op());
    let reply = make(store, Ask { group, op, call }).await?;
    let mixed_up = || {
        Error::new(
            ErrorKind::Internal,
            format!("the answer to {} is that of another call", R::VERB),
        )
    };
    R::reply(reply).ok_or_else(mixed_up)
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
