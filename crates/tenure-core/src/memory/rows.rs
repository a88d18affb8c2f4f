//! What a group keeps, row by row: the contract between the model and whatever stores it.
//!
//! The model hands out the rows that a step changed and is loaded from rows again. Everything else it has (indexes, counts,
//! deadlines that beats moved) follows from these rows, or is of the running process alone.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, EventId};
use crate::id::{Alias, ConnectionId, Key, LeaseName, MemberId, ProviderId, RegistryName, SessionId, TenureId, Term};
use crate::lease::Token;
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
    /// How a tenure ended.
    Ended(TenureId),
    /// A member that lapsed and is not back, for the brake.
    Lapse(MemberId),
    /// The owner of a key.
    Claim(RegistryName, Key),
    /// The holder of a lease.
    Lease(LeaseName),
    /// The reservation of a lease that was handed off.
    Reserved(LeaseName),
    /// A target.
    Target(LeaseName),
    /// A session without its connections.
    Session(SessionId),
    /// A connection of a session.
    Connection(SessionId, ConnectionId),
    /// What is known of the roster as a whole.
    Roster,
    /// How far the members have the ttl of the roster's settings.
    Retiming,
    /// A row of the ledger.
    Provider(ProviderId),
    /// A row that the ledger removed.
    Removed(ProviderId),
    /// An ended tenure that the ledger has to follow.
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
    /// The specification of the target.
    Target(TargetSpec),
    /// See [`RowKey::Session`].
    Session(SessionRow),
    /// See [`RowKey::Connection`].
    Connection(ConnectionRow),
    /// See [`RowKey::Roster`].
    Roster(RosterRow),
    /// The last member that has the ttl of the settings; `None` before the first. No row: every member has it.
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
    /// The deadline at the time of this row. Beats that change nothing else are not stored.
    pub deadline: StoreTime,
    /// Its labels.
    pub labels: Labels,
    /// The number of what it holds.
    pub revision: Revision,
}

/// How a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedRow {
    /// Why.
    pub reason: EndReason,
    /// Its end time, as it was when it ended.
    pub end: StoreTime,
    /// When it ended.
    pub at: StoreTime,
    /// When this record may be forgotten.
    pub forget_at: StoreTime,
    /// When to release the next part of what it holds; `None` when nothing is left.
    pub visit: Option<StoreTime>,
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The tenure that holds it.
    pub tenure: TenureId,
    /// The token of the grant.
    pub token: Token,
}

/// The reservation of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedRow {
    /// The member that may acquire it.
    pub member: MemberId,
    /// When the reservation ends.
    pub until: StoreTime,
}

/// A session without its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// The epoch of the last attach.
    pub epoch: Epoch,
    /// Its other name.
    pub alias: Option<Alias>,
    /// A grace of its own.
    pub grace: Option<Duration>,
    /// When it was created.
    pub created_at: StoreTime,
    /// When its data changed last.
    pub updated_at: StoreTime,
    /// Set while it has no connections.
    pub away: Option<Away>,
    /// Its data. Shared with the model, which replaces it and never changes it in place while it is shared.
    pub data: Arc<Data>,
}

/// A session without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// When its grace is over, as it was fixed when the last connection went.
    pub reap_at: StoreTime,
    /// The grace.
    pub granted: Duration,
    /// Its entry in the lazy index: the earliest time at which it may be an orphan.
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

/// What is known of a roster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RosterRow {
    /// The highest version that was ever taken over.
    pub high: Version,
    /// All that the ledger had has arrived.
    pub seeded: bool,
    /// The settings, with how long a count of the available may be believed; `None` until some have arrived.
    pub settings: Option<RosterSettings>,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    /// The row; its last heartbeat is not stored and `None`.
    pub provider: Provider,
    /// The ledger has been told that the tenure in `online` is over.
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

/// An ended tenure that the ledger has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfflinedRow {
    /// When the store ended it.
    pub ended_at: StoreTime,
    /// When that was for the ledger.
    pub at: StoreTime,
    /// Why.
    pub reason: EndReason,
    /// Its last beat; `None` when it had ended before its row arrived.
    pub heard_at: Option<StoreTime>,
}

/// The turn at a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnRow {
    /// Whose turn it is, and until when.
    pub holder: Option<(String, StoreTime)>,
    /// When it was done last.
    pub done_at: Option<StoreTime>,
}

/// What a group knows about itself. Written with every commit of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRow {
    /// When the group began.
    pub born_at: StoreTime,
    /// The last step that was served.
    pub tick: StoreTime,
    /// When every ttl started again last.
    pub resumed_at: StoreTime,
    /// The last number of the sequence of terms, tokens and revisions.
    pub seq: u64,
    /// The number of the newest event.
    pub last_event: EventId,
    /// The smallest and the largest ttl since the group was last empty.
    pub ttls: Option<(Duration, Duration)>,
    /// The grace that runs.
    pub unsettled: Option<Unsettled>,
    /// An operator ended the waits up to this end; zero for none.
    pub settled: StoreTime,
    /// Since when the brake is engaged, and until when at most.
    pub brake: Option<(StoreTime, StoreTime)>,
}

/// What a commit has to write of one group: whole steps, with present values.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// All steps up to this number are in.
    pub number: u64,
    /// The group.
    pub group: GroupRow,
    /// The rows that changed; `None` for what is deleted. A key occurs once.
    pub rows: Vec<(RowKey, Option<Row>)>,
    /// The new events in order.
    pub events: Vec<Event>,
}
