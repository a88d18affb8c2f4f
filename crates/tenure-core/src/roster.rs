//! The mirror of a roster: the hot copy of the ledger's rows, and who of them is alive.
//!
//! A roster is a group. Its providers are the members, being online is a tenure, a heartbeat is a beat by name, and
//! being stale is a lapse; so gaps, the brake and the sweeps hold for providers as for everyone. Beside that the group
//! keeps the ledger's rows, each in the newest version that has arrived. Nobody is available whose row does not name the
//! tenure that is alive now: the row is what the ledger says, the tenure is what the store sees, and both must agree.
//!
//! When a tenure ends that a row names, the mirror stops counting the provider in the same step, and remembers that the
//! ledger has to follow ([`RosterMirror::pending_offline`]) until it is told that it has.
//!
//! Every step is atomic per [`BATCH`](crate::sweep::BATCH) of its items and begins like every other: it looks for a gap,
//! and ends durably each tenure that it meets past its end time. Reading changes nothing but a snapshot.

pub mod compare;
pub mod heartbeat;
pub mod offline;
pub mod put;
pub mod reading;
pub mod request;
pub mod seat;
pub mod turn;

use std::time::Duration;

use async_trait::async_trait;

pub use self::compare::Comparison;
pub use self::heartbeat::{Heartbeat, HeartbeatReply, Heartbeats};
pub use self::offline::{Offlined, Pending};
pub use self::put::{Entry, Over, Put, PutOutcome, Standing, check_puts};
pub use self::reading::{Availability, Looked, Ranked, Rows, Seen, Stamp, Stats, Verified};
pub use self::request::{
    BeatProviders, CountAvailable, CountRoster, EndTurn, ListAvailable, ListPending, ListRows, LookUp, MarkSeeded,
    OfflineDone, PutProviders, PutRosterSettings, ReadSettings, ReadStamp, Retime, Seat, VerifyRoster,
};
pub use self::seat::{NEVER_STALE, Seated, check_stale_after};
pub use self::turn::{Task, Turn, TurnRequest, check_holder};
use crate::call::ask;
use crate::error::{Error, Result};
use crate::id::{Group, ProviderId, RosterName, TenureId};
use crate::ledger::RosterSettings;
use crate::store::{Backend, Call, PageRequest};
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

/// The most items of one call: rows, heartbeats, seats, tenures. As in the ledger.
pub const MAX_ITEMS: usize = crate::ledger::provider::MAX_BATCH;
/// How long a removed provider is remembered, so that a slow writer of an old row cannot bring it back.
pub const TOMBSTONES_KEPT: Duration = Duration::from_secs(3_600);
/// How often the snapshot of availability is made anew at most, however much changes.
pub const SNAPSHOT_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How many members that may have lapsed a reader looks at.
pub const MAX_OVERDUE: usize = 1_000;

/// Refuses too many items.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_items(count: usize) -> Result<()> {
    if count > MAX_ITEMS {
        return Err(Error::invalid(format!(
            "{count} items in one call; at most {MAX_ITEMS}"
        )));
    }
    Ok(())
}

/// The group of a roster.
///
/// # Errors
/// `Invalid` for a name that leaves no room for the prefix.
pub fn group_of(roster: &RosterName) -> Result<Group> {
    Group::new(format!("{PREFIX}{roster}"))
}

/// The roster of a group, if it is one.
#[must_use]
pub fn roster_of(group: &Group) -> Option<RosterName> {
    RosterName::new(group.as_str().strip_prefix(PREFIX)?).ok()
}

const PREFIX: &str = "roster.";

/// The hot copy of a roster.
///
/// Every method can fail with `Unavailable`, and every one that takes a [`Call`] with `TooLate`; every one that takes
/// a list fails with `Invalid` for more than [`MAX_ITEMS`] items, before anything is sent. These are not said again below.
/// After an error with [`Outcome::Unchanged`](crate::error::Outcome) nothing happened; after `Unknown`, ask again: every
/// step may be repeated.
#[async_trait]
pub trait RosterMirror: Backend {
    /// Takes over rows and removals, each if it is newer than what is there (or as its [`Over`] says), and answers each by
    /// itself, in the order asked. A row whose tenure has ended joins the pending ones. O(items · log providers).
    ///
    /// # Errors
    /// None of its own.
    async fn put_providers(&self, group: &Group, puts: &[Put], call: Call) -> Result<Vec<PutOutcome>> {
        let puts = puts.to_vec();
        ask(self, Some(group), PutProviders { puts }, call).await
    }

    /// Gives each of these a tenure if it has none that is alive; one that is alive keeps its tenure, and its heartbeat
    /// stays as old as it is unless `beat` is said. Nobody's row changes: the ledger decides first which tenure it names.
    /// The ttl is that of the group's settings when it has some, else `stale_after`. O(items · log members).
    ///
    /// # Errors
    /// `Invalid` for a `stale_after` outside 1 s to [`NEVER_STALE`]: nothing changed.
    async fn seat(
        &self,
        group: &Group,
        providers: &[ProviderId],
        stale_after: Duration,
        beat: bool,
        call: Call,
    ) -> Result<Vec<Seated>> {
        let providers = providers.to_vec();
        let request = Seat {
            providers,
            stale_after,
            beat,
        };
        ask(self, Some(group), request, call).await
    }

    /// Records heartbeats by name, each answered by itself: extends the tenure that the row names, if that is alive and
    /// the row allows it. Never creates, revives or activates. Like a beat it needs no not-after. O(items).
    ///
    /// # Errors
    /// None of its own.
    async fn heartbeat(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        let heartbeats = heartbeats.to_vec();
        ask(self, Some(group), BeatProviders { heartbeats }, Call::default()).await
    }

    /// Who can take work, the least occupied first, then by name: active, with room, and alive under the tenure of the row.
    /// A page may be short and still have a next one. O(page · log providers).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn available(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        let page = page.clone();
        ask(self, Some(group), ListAvailable { page }, Call::default()).await
    }

    /// How many can take work, from the group's snapshot: one that is younger than `snapshot` and since which nothing
    /// changed, or younger than [`SNAPSHOT_AT_MOST_EVERY`] (and than `snapshot`); else it is counted anew and kept for
    /// everyone. O(those whose ttl is over since the last sweep).
    ///
    /// # Errors
    /// None of its own.
    async fn availability(&self, group: &Group, snapshot: Duration) -> Result<Availability> {
        ask(self, Some(group), CountAvailable { snapshot }, Call::default()).await
    }

    /// Looks providers up, in the order asked; `None` for what is not there. O(items).
    ///
    /// # Errors
    /// None of its own.
    async fn look(&self, group: &Group, providers: &[ProviderId]) -> Result<Looked> {
        let providers = providers.to_vec();
        ask(self, Some(group), LookUp { providers }, Call::default()).await
    }

    /// Lists the rows, page by page, in no particular order. A provider present throughout is listed at least once.
    /// O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        let page = page.clone();
        ask(self, Some(group), ListRows { page }, Call::default()).await
    }

    /// Counts, without touching everyone. O(those whose ttl is over since the last sweep).
    ///
    /// # Errors
    /// None of its own.
    async fn roster_stats(&self, group: &Group) -> Result<Stats> {
        ask(self, Some(group), CountRoster, Call::default()).await
    }

    /// What every reply tells about the mirror, and nothing else. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn stamp(&self, group: &Group) -> Result<Stamp> {
        ask(self, Some(group), ReadStamp, Call::default()).await
    }

    /// The ended tenures that the ledger has to follow, at most `limit` (1..=1000), those first that ended first;
    /// [`BURST`](crate::sweep::BURST) after their end, and not those that lapsed while the brake is engaged. `force` lifts
    /// the brake first. Asking changes nothing else: they stay until [`RosterMirror::offline_done`]. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of bounds.
    async fn pending_offline(&self, group: &Group, limit: u32, force: bool, call: Call) -> Result<Pending> {
        ask(self, Some(group), ListPending { limit, force }, call).await
    }

    /// The ledger has followed these. Answers how many were pending. O(items).
    ///
    /// # Errors
    /// None of its own.
    async fn offline_done(&self, group: &Group, tenures: &[TenureId], call: Call) -> Result<u64> {
        let tenures = tenures.to_vec();
        ask(self, Some(group), OfflineDone { tenures }, call).await
    }

    /// Takes the ledger's settings over if they are newer than what is there (or as `over` says), and answers whether it
    /// did. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn put_roster_settings(
        &self,
        group: &Group,
        settings: &RosterSettings,
        over: Over,
        call: Call,
    ) -> Result<bool> {
        let settings = *settings;
        ask(self, Some(group), PutRosterSettings { settings, over }, call).await
    }

    /// The settings that are there; `None` when there never were any. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn roster_settings(&self, group: &Group) -> Result<Option<RosterSettings>> {
        ask(self, Some(group), ReadSettings, Call::default()).await
    }

    /// Gives members the ttl that the settings say, at most `limit` of them (1..=1000), and answers whether there are
    /// more: a member was heard of when it was, so its deadline moves with the ttl. Only one that could not become stale
    /// before gets the whole new ttl from now. Does nothing when everybody has it. O(limit · log members).
    ///
    /// # Errors
    /// `Invalid` for a limit out of bounds.
    async fn retime(&self, group: &Group, limit: u32, call: Call) -> Result<bool> {
        ask(self, Some(group), Retime { limit }, call).await
    }

    /// Takes the turn at a task that one instance does for all, or says who has it. Only saves work: every task may be
    /// done by several at once. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn take_turn(&self, group: &Group, request: &TurnRequest, call: Call) -> Result<Turn> {
        ask(self, Some(group), request.clone(), call).await
    }

    /// Ends one's turn at a task, done or not. Nothing happens when it is somebody else's by now. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn end_turn(&self, group: &Group, task: Task, holder: &str, done: bool, call: Call) -> Result<()> {
        let holder = holder.to_owned();
        ask(self, Some(group), EndTurn { task, holder, done }, call).await
    }

    /// Says that everything the ledger had has arrived; see [`Stamp::seeded`]. The mark is gone with the data. `since` is
    /// the [`Stamp::resumed_at`] from before anything was brought: nothing happens when it is another one by now, since
    /// what was brought first may be gone. Answers whether it is marked. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn mark_seeded(&self, group: &Group, since: StoreTime, call: Call) -> Result<bool> {
        ask(self, Some(group), MarkSeeded { since }, call).await
    }

    /// Goes through a part of the mirror (rows, then removals, then what leads to them), mends what does not fit together
    /// in itself, forgets removals older than [`TOMBSTONES_KEPT`], and tells what it saw, for comparing with the ledger.
    /// O(limit · log providers).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a part of this mirror, or a limit outside 1..=1000.
    async fn verify_roster(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        ask(self, Some(group), VerifyRoster(request.clone()), call).await
    }
}

impl<S: Backend> RosterMirror for S {}
