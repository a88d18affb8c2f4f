//! The mirror of a roster: the hot copy of the ledger's rows, and the liveness of its providers.
//!
//! A roster is a group. Its providers are members, being online is a tenure, a heartbeat is a beat by name, and being
//! stale is a lapse, so gaps, the brake and the sweeps apply to providers as to any member. The group also keeps the
//! ledger's rows, each in the newest version received. A provider is available only if its row names the tenure that is
//! alive now: the row comes from the ledger, the tenure from the store, and both must agree.
//!
//! When a tenure that a row names ends, the mirror stops counting the provider in the same step and keeps the tenure as
//! pending ([`RosterMirror::pending_offline`]) until the ledger has applied it.
//!
//! Every step is atomic per [`BATCH`](crate::sweep::BATCH) of its items. Like any step, it first checks for a gap and
//! durably ends each tenure it finds past its end time. Reads change nothing except the snapshot.

pub mod compare;
pub mod heartbeat;
pub mod offline;
pub mod put;
pub mod reading;
pub mod request;
pub mod tenure;
pub mod turn;

use std::time::Duration;

use async_trait::async_trait;

pub use self::compare::Comparison;
pub use self::heartbeat::{Heartbeat, HeartbeatReply, Heartbeats};
pub use self::offline::{Offlined, Pending};
pub use self::put::{MirrorEntry, Overwrite, Put, PutOutcome, Standing, check_puts};
pub use self::reading::{Availability, FoundProviders, MirrorStatus, MirroredProvider, Ranked, Rows, Stats, Verified};
pub use self::request::{
    BeatProviders, CountAvailable, CountRoster, EndTurn, EnsureTenures, ListAvailable, ListPending, ListRows, LookUp,
    MarkSeeded, OfflineDone, PutProviders, PutRosterSettings, ReadMirrorStatus, ReadSettings, Retime, VerifyRoster,
};
pub use self::tenure::{EnsuredTenure, NEVER_STALE, check_stale_after};
pub use self::turn::{Task, Turn, TurnRequest, check_holder};
use crate::call::send;
use crate::error::{Error, Result};
use crate::id::{Group, ProviderId, RosterName, TenureId};
use crate::ledger::RosterSettings;
use crate::store::{Backend, Call, PageRequest};
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

/// The maximum number of items in one call: rows, heartbeats, providers, tenures. The same as in the ledger.
pub const MAX_ITEMS: usize = crate::ledger::provider::MAX_BATCH;
/// How long a removal is remembered, so that a slow writer of an old row cannot restore it.
pub const TOMBSTONES_KEPT: Duration = Duration::from_secs(3_600);
/// The minimum time between two snapshots of availability, however many changes there are.
pub const SNAPSHOT_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// The maximum number of possibly lapsed members that a read checks.
pub const MAX_OVERDUE: usize = 1_000;

/// Rejects too many items.
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
/// `Invalid` for a name that is too long with the prefix.
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
/// Every method can fail with `Unavailable`, every method with a [`Call`] also with `TooLate`, and every method with a
/// list with `Invalid` for more than [`MAX_ITEMS`] items, before anything is sent. The methods below do not repeat
/// this. After an error with [`Outcome::Unchanged`](crate::error::Outcome) nothing happened. After `Unknown`, retry:
/// every step is idempotent.
#[async_trait]
pub trait RosterMirror: Backend {
    /// Applies rows and removals, each if it is newer than the present version (or according to its [`Overwrite`]).
    /// Each has its own outcome, in request order. A row whose tenure has ended becomes pending. O(items · log
    /// providers).
    async fn put_providers(&self, group: &Group, puts: &[Put], call: Call) -> Result<Vec<PutOutcome>> {
        let puts = puts.to_vec();
        send(self, Some(group), PutProviders { puts }, call).await
    }

    /// Gives each provider a tenure, unless it has a living one; that one is kept, and its heartbeat is renewed only
    /// with `beat`. Rows do not change: the ledger first decides which tenure a row names. The ttl comes from the
    /// group's settings, or else is `stale_after`. O(items · log members).
    ///
    /// # Errors
    /// `Invalid` for a `stale_after` outside 1 s to [`NEVER_STALE`]; nothing changed.
    async fn ensure_tenures(
        &self,
        group: &Group,
        providers: &[ProviderId],
        stale_after: Duration,
        beat: bool,
        call: Call,
    ) -> Result<Vec<EnsuredTenure>> {
        let providers = providers.to_vec();
        let request = EnsureTenures {
            providers,
            stale_after,
            beat,
        };
        send(self, Some(group), request, call).await
    }

    /// Records heartbeats by name. Each extends the tenure that the row names, if it is alive and the row permits it,
    /// and has its own reply. Never creates, revives or activates a provider. Like a beat, it needs no not-after.
    /// O(items).
    async fn heartbeat(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        let heartbeats = heartbeats.to_vec();
        send(self, Some(group), BeatProviders { heartbeats }, Call::default()).await
    }

    /// Lists the available providers, the least occupied first, then by name: active, with room, and alive under the
    /// tenure of the row. A page may be short and still have a next one. O(page · log providers).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn available(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        let page = page.clone();
        send(self, Some(group), ListAvailable { page }, Call::default()).await
    }

    /// Counts the available providers from the group's snapshot. The snapshot is used if it is younger than `snapshot`
    /// and either nothing has changed since or it is younger than [`SNAPSHOT_AT_MOST_EVERY`]; otherwise it is counted
    /// again and shared. O(providers whose ttl ended since the last sweep).
    async fn availability(&self, group: &Group, snapshot: Duration) -> Result<Availability> {
        send(self, Some(group), CountAvailable { snapshot }, Call::default()).await
    }

    /// Reads providers by name, in request order; `None` for a missing one. O(items).
    async fn look(&self, group: &Group, providers: &[ProviderId]) -> Result<FoundProviders> {
        let providers = providers.to_vec();
        send(self, Some(group), LookUp { providers }, Call::default()).await
    }

    /// Lists the rows, page by page, in no particular order. A provider that is present throughout appears at least
    /// once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        let page = page.clone();
        send(self, Some(group), ListRows { page }, Call::default()).await
    }

    /// Counts providers by state. O(providers whose ttl ended since the last sweep).
    async fn roster_stats(&self, group: &Group) -> Result<Stats> {
        send(self, Some(group), CountRoster, Call::default()).await
    }

    /// Reads only the status that every reply carries. O(1).
    async fn mirror_status(&self, group: &Group) -> Result<MirrorStatus> {
        send(self, Some(group), ReadMirrorStatus, Call::default()).await
    }

    /// Lists the ended tenures that the ledger must apply, at most `limit` (1..=1000), in the order of their ends. Each
    /// appears [`BURST`](crate::sweep::BURST) after its end, and lapsed ones not while the brake is engaged; `force`
    /// lifts the brake first. They stay pending until [`RosterMirror::offline_done`]. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of range.
    async fn pending_offline(&self, group: &Group, limit: u32, force: bool, call: Call) -> Result<Pending> {
        send(self, Some(group), ListPending { limit, force }, call).await
    }

    /// Records that the ledger has applied these tenures. Returns how many were pending. O(items).
    async fn offline_done(&self, group: &Group, tenures: &[TenureId], call: Call) -> Result<u64> {
        let tenures = tenures.to_vec();
        send(self, Some(group), OfflineDone { tenures }, call).await
    }

    /// Applies the ledger's settings if they are newer than the present ones (or according to `over`). Returns whether
    /// they were applied. O(1).
    async fn put_roster_settings(
        &self,
        group: &Group,
        settings: &RosterSettings,
        over: Overwrite,
        call: Call,
    ) -> Result<bool> {
        let settings = *settings;
        send(self, Some(group), PutRosterSettings { settings, over }, call).await
    }

    /// Reads the settings; `None` if there never were any. O(1).
    async fn roster_settings(&self, group: &Group) -> Result<Option<RosterSettings>> {
        send(self, Some(group), ReadSettings, Call::default()).await
    }

    /// Applies the ttl of the settings to at most `limit` members (1..=1000), and returns whether there are more. A
    /// member's deadline moves by the change of its ttl, because its last heartbeat stays the same. Only a member that
    /// could not become stale before gets the full new ttl from now. Does nothing if all members have the ttl. O(limit
    /// · log members).
    ///
    /// # Errors
    /// `Invalid` for a limit out of range.
    async fn retime(&self, group: &Group, limit: u32, call: Call) -> Result<bool> {
        send(self, Some(group), Retime { limit }, call).await
    }

    /// Takes the turn at a task that one instance does for all, or returns its holder. This only saves work: several
    /// instances may do the same task. O(1).
    async fn take_turn(&self, group: &Group, request: &TurnRequest, call: Call) -> Result<Turn> {
        send(self, Some(group), request.clone(), call).await
    }

    /// Ends the holder's turn at a task, done or not. Does nothing if another instance has the turn. O(1).
    async fn end_turn(&self, group: &Group, task: Task, holder: &str, done: bool, call: Call) -> Result<()> {
        let holder = holder.to_owned();
        send(self, Some(group), EndTurn { task, holder, done }, call).await
    }

    /// Marks the mirror as filled with all rows of the ledger; see [`MirrorStatus::seeded`]. The mark is lost with the
    /// data. `since` is the [`MirrorStatus::resumed_at`] from before the first row. If it has changed, nothing happens,
    /// because early rows may be lost. Returns whether the mirror is marked. O(1).
    async fn mark_seeded(&self, group: &Group, since: StoreTime, call: Call) -> Result<bool> {
        send(self, Some(group), MarkSeeded { since }, call).await
    }

    /// Checks a part of the mirror (rows, then removals, then the indexes), repairs inconsistencies, forgets removals
    /// older than [`TOMBSTONES_KEPT`], and returns the entries for comparison with the ledger. O(limit · log
    /// providers).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a part of this mirror, or a limit outside 1..=1000.
    async fn verify_roster(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        send(self, Some(group), VerifyRoster(request.clone()), call).await
    }
}

impl<S: Backend> RosterMirror for S {}
