//! The rows of a group: the contract between the model and the engine that stores them.
//!
//! The model hands out the rows that a step changed, and is loaded from rows. All its other state (indexes, counts,
//! deadlines moved by beats) is derived from these rows or belongs only to the running process.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, EventId};
use crate::id::{Alias, ConnectionId, Key, LeaseName, MemberId, ProviderId, RegistryName, SessionId, TenureId, Term};
use crate::lease::{Holders, Place, RequestId, Token};
use crate::ledger::{Provider, RosterSettings, Version};
use crate::membership::{EndReason, Labels, Revision};
use crate::roster::Task;
use crate::session::{Data, Epoch};
use crate::sweep::Unsettled;
use crate::target::TargetSpec;
use crate::time::StoreTime;

/// The key of a row within its group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// The current tenure of a member.
    Member(MemberId),
    /// The end of a tenure.
    Ended(TenureId),
    /// A member that lapsed and has not rejoined, for the brake.
    Lapse(MemberId),
    /// The owner of a key.
    Claim(RegistryName, Key),
    /// The holder of a place of a lease.
    Lease(LeaseName, Place),
    /// The reservation of a place of a lease that was handed off.
    Reserved(LeaseName, Place),
    /// A target.
    Target(LeaseName),
    /// A session without its connections.
    Session(SessionId),
    /// A connection of a session.
    Connection(SessionId, ConnectionId),
    /// The state of the roster as a whole.
    Roster,
    /// The progress of applying the ttl of the roster's settings.
    Retiming,
    /// A row of the ledger.
    Provider(ProviderId),
    /// A row that the ledger removed.
    Removed(ProviderId),
    /// An ended tenure that the ledger must apply.
    Offlined(TenureId),
    /// The turn at a task.
    Turn(Task),
}

/// The value of a row. The variant is that of its key.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// See [`RowKey::Member`].
    Member(MemberRow),
    /// See [`RowKey::Ended`].
    Ended(EndedRow),
    /// When the member lapsed.
    Lapse(StoreTime),
    /// The tenure that owns the key.
    Claim(TenureId),
    /// See [`RowKey::Lease`].
    Lease(LeaseRow),
    /// See [`RowKey::Reserved`].
    Reserved(ReservedRow),
    /// The settings of the target.
    Target(TargetSpec),
    /// See [`RowKey::Session`].
    Session(SessionRow),
    /// See [`RowKey::Connection`].
    Connection(ConnectionRow),
    /// See [`RowKey::Roster`].
    Roster(RosterRow),
    /// The last member with the ttl of the settings; `None` before the first. Without a row, every member has it.
    Retiming(Option<MemberId>),
    /// See [`RowKey::Provider`].
    Provider(ProviderRow),
    /// See [`RowKey::Removed`].
    Removed(RemovedRow),
    /// See [`RowKey::Offlined`].
    Offlined(OfflinedRow),
    /// See [`RowKey::Turn`].
    Turn(TurnRow),
}

/// The current tenure of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// Its term.
    pub term: Term,
    /// Its ttl.
    pub ttl: Duration,
    /// The deadline when this row was written. Beats that change nothing else are not stored.
    pub deadline: StoreTime,
    /// Its labels.
    pub labels: Labels,
    /// The revision of its holdings.
    pub revision: Revision,
}

/// The end of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedRow {
    /// The reason.
    pub reason: EndReason,
    /// Its end time, when it ended.
    pub end: StoreTime,
    /// When it ended.
    pub at: StoreTime,
    /// When this record may be forgotten.
    pub forget_at: StoreTime,
    /// When to release the next part of its holdings; `None` if there are none.
    pub visit: Option<StoreTime>,
}

/// The holder of a place of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The tenure that holds it.
    pub tenure: TenureId,
    /// The token of the grant.
    pub token: Token,
    /// The number of holders of the lease.
    pub holders: Holders,
    /// The generation of the lease.
    pub generation: Token,
    /// The number of the last request that asked for the lease, if it waited or would have.
    pub request: Option<RequestId>,
    /// Set if an operator has released it.
    pub revoked: Option<Revocation>,
}

/// The release of a grant by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revocation {
    /// The revision of the holder's tenure that reports it.
    pub revision: Revision,
    /// When the holder certainly no longer acts under the grant: its deadline at the release. `None` if its last beat
    /// named no revision, so that later beats extend its trust.
    pub limit: Option<StoreTime>,
}

/// The reservation of a place of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedRow {
    /// The member that may acquire it.
    pub member: MemberId,
    /// When the reservation ends.
    pub until: StoreTime,
    /// The number of holders of the lease.
    pub holders: Holders,
    /// The generation of the lease.
    pub generation: Token,
}

/// A session without its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// The epoch of the last attach.
    pub epoch: Epoch,
    /// Its alias.
    pub alias: Option<Alias>,
    /// Its own grace.
    pub grace: Option<Duration>,
    /// When it was created.
    pub created_at: StoreTime,
    /// When its data last changed.
    pub updated_at: StoreTime,
    /// Set while it has no connections.
    pub away: Option<Away>,
    /// Its data, shared with the model, which never changes it in place while it is shared.
    pub data: Arc<Data>,
}

/// A session without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// The end of its grace, fixed when the last connection ended.
    pub reap_at: StoreTime,
    /// The grace.
    pub granted: Duration,
    /// Its time in the lazy index: the earliest time at which it may be an orphan.
    pub due: StoreTime,
}

/// A connection of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRow {
    /// The tenure that holds it.
    pub tenure: TenureId,
    /// The epoch of its attach.
    pub epoch: Epoch,
}

/// The state of a roster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RosterRow {
    /// The highest version ever written.
    pub high: Version,
    /// Whether all rows of the ledger have arrived.
    pub seeded: bool,
    /// The settings; `None` until some have arrived.
    pub settings: Option<RosterSettings>,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    /// The row; its last heartbeat is not stored and `None`.
    pub provider: Provider,
    /// Whether the ledger knows that the tenure in `online` has ended.
    pub followed: bool,
}

/// A row that the ledger removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedRow {
    /// The version of the removal.
    pub version: Version,
    /// When it arrived.
    pub at: StoreTime,
}

/// An ended tenure that the ledger must apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfflinedRow {
    /// When the store ended it.
    pub ended_at: StoreTime,
    /// The end for the ledger: the end time if it lapsed.
    pub at: StoreTime,
    /// The reason of the end.
    pub reason: EndReason,
    /// Its last beat; `None` if it had ended before its row arrived.
    pub heard_at: Option<StoreTime>,
}

/// The turn at a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnRow {
    /// The holder of the turn, and its end.
    pub holder: Option<(String, StoreTime)>,
    /// When the task was last done.
    pub done_at: Option<StoreTime>,
}

/// The state of a group itself. Written with every commit of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRow {
    /// When the group began.
    pub born_at: StoreTime,
    /// The time of the last step.
    pub tick: StoreTime,
    /// When every ttl last restarted.
    pub resumed_at: StoreTime,
    /// The last number of the sequence of terms, tokens and revisions.
    pub seq: u64,
    /// The number of the newest event.
    pub last_event: EventId,
    /// The smallest and the largest ttl since the group was last empty.
    pub ttls: Option<(Duration, Duration)>,
    /// The current grace.
    pub unsettled: Option<Unsettled>,
    /// An operator has ended the waits up to this end; zero for none.
    pub settled: StoreTime,
    /// The start and the latest end of an engaged brake.
    pub brake: Option<(StoreTime, StoreTime)>,
}

/// The content of a commit of one group: whole steps, with present values.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// It contains all steps up to this number.
    pub number: u64,
    /// The row of the group.
    pub group: GroupRow,
    /// The changed rows; `None` for deleted ones. Each key appears once.
    pub rows: Vec<(RowKey, Option<Row>)>,
    /// The new events, in order.
    pub events: Vec<Event>,
}
