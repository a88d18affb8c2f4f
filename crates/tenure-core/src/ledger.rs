//! The ledger: the durable truth about rosters. The mirror in the hot store follows it.
//!
//! A write commits here first. Every row has a version, and the mirror accepts only a newer one. The changes of a step
//! are in the outbox, written in the same step, until the mirror confirms them. The one exception is liveness: the hot
//! store decides that a tenure ended, and the ledger applies it by compare-and-set on exactly that tenure.
//!
//! Every step is atomic and decides on the ledger's own clock. A retried step changes nothing and returns the current
//! row. An error with [`Unchanged`](crate::error::Outcome::Unchanged) changed nothing; after `Unknown`, retry.
//!
//! [`memory::MemoryLedger`] is the reference that the other ledgers are compared with, step by step.

pub mod engagement;
pub mod heartbeats;
pub mod hot_store;
pub mod log;
pub mod memory;
pub mod outbox;
pub mod overview;
pub mod provider;
pub mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

pub use self::engagement::{
    Candidates, Engagement, EngagementChange, EngagementOutcome, ExpiredBatch, Expiry, Move, NewEngagement, Reassign,
    ReserveOutcome, Status,
};
pub use self::heartbeats::{HeartbeatMarks, HeartbeatPass};
pub use self::hot_store::{HotStore, HotStoreClaim, HotStoreOutcome, RecordedHotStore};
pub use self::log::{Change, LogEntry, Reason};
pub use self::memory::MemoryLedger;
pub use self::outbox::Dirty;
pub use self::overview::{Overview, RosterView};
pub use self::provider::{
    Candidate, Capacity, EndedBatch, EndedTenure, Follow, OnlineOutcome, Provider, ProviderChange, ProviderSpec,
    ProviderState, RemoveOutcome, RosterStats, Version,
};
pub use self::settings::{RosterSettings, SettingsPatch};
use crate::error::{Error, Result};
use crate::id::{EngagementId, ProviderId, RosterName, TenureId};
use crate::store::{Finding, Health, Page, PageRequest};
use crate::time::StoreTime;

/// Rejects a tenure of another member.
///
/// # Errors
/// `Invalid`, with both.
pub fn check_tenure(provider: &ProviderId, tenure: Option<&TenureId>) -> Result<()> {
    match tenure {
        Some(tenure) if tenure.member().as_str() != provider.as_str() => Err(Error::invalid(format!(
            "the tenure {tenure} does not belong to the provider {provider}"
        ))),
        _ => Ok(()),
    }
}

/// Rejects too many updates, and one with tenures of two members.
///
/// # Errors
/// `Invalid`, with the value.
pub fn check_follows(follows: &[Follow]) -> Result<()> {
    provider::check_batch(follows.len())?;
    match follows.iter().find(|follow| follow.from.member() != follow.to.member()) {
        Some(Follow { from, to }) => Err(Error::invalid(format!(
            "the tenures {from} and {to} belong to two members"
        ))),
        None => Ok(()),
    }
}

/// The durable truth about rosters.
///
/// Every method can fail with `Unavailable` (the database is unreachable, read-only or out of connections; the outcome
/// says whether the step may have taken effect). The methods below do not repeat this. Reads change nothing.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The URL of the ledger without secrets, for display.
    fn place(&self) -> String;

    /// Whether recent calls succeeded. No I/O.
    fn health(&self) -> Health;

    /// Reads the ledger's clock. The cheapest round trip.
    async fn now(&self) -> Result<StoreTime>;

    /// Checks version, settings and permissions. Never fails: a check that cannot run is a finding.
    async fn examine(&self) -> Vec<Finding>;

    /// Closes the connections. Later calls fail with `Unavailable`.
    async fn close(&self);

    /// Names the hot store of this process, and repeats that every [`CONFIRM_EVERY`](hot_store::CONFIRM_EVERY). A
    /// ledger has one hot store; see [`RecordedHotStore::yields_to`]. By default every claim is admitted: one process at
    /// a time can use the ledger. O(1).
    async fn claim_hot_store(&self, _claim: &HotStoreClaim) -> Result<HotStoreOutcome> {
        Ok(HotStoreOutcome::Admitted)
    }

    /// The recorded hot store; `None` if none was recorded. O(1).
    async fn hot_store(&self) -> Result<Option<RecordedHotStore>> {
        Ok(None)
    }

    /// The rosters that have settings or ever had a provider, by name. O(rosters).
    async fn rosters(&self) -> Result<Vec<RosterName>>;

    /// Reads the state of all rosters in one statement; every process polls it about once a second. O(rosters).
    async fn overview(&self) -> Result<Overview>;

    /// The settings of a roster; the defaults with [`Version::NONE`] if none were ever set. O(1).
    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings>;

    /// Changes settings. Their version rises only if they differ. A new default capacity is written into the rows of
    /// all providers without their own capacity, in the same step. O(1), and O(providers) for the default capacity.
    ///
    /// # Errors
    /// `Invalid` for an exceeded limit; nothing changed.
    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings>;

    /// Creates or changes a provider. A new one is active and offline. O(1).
    ///
    /// # Errors
    /// `Invalid` for an exceeded limit; nothing changed.
    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange>;

    /// Removes a provider that is offline and has no open engagement, and leaves a tombstone in the outbox. Its log and
    /// past engagements remain. O(1).
    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome>;

    /// Reads a provider; `None` if it does not exist. O(1).
    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>>;

    /// Reads providers by name, without those that do not exist. At most [`provider::MAX_BATCH`]. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many.
    async fn providers_named(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, Provider>>;

    /// Lists providers by name, of one state or all. Each page is consistent; several pages together are not. O(page)
    /// for all and for online ones, O(providers) for the other states.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn providers(
        &self,
        roster: &RosterName,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>>;

    /// Allows a provider to take work again. It stays offline until it comes online itself. O(1).
    ///
    /// # Errors
    /// `NotFound`; nothing changed.
    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange>;

    /// Forbids a provider to take work, takes it offline and revokes its earlier tokens (`revoked_before`), in one
    /// step. `was_online` in the reply is the tenure to end in the hot store. Does nothing if it is already
    /// deactivated. O(1).
    ///
    /// # Errors
    /// `NotFound`; nothing changed.
    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange>;

    /// Takes a provider online under a tenure. If it is already online under another one, the higher term wins, so
    /// replies out of order do no harm.
    ///
    /// Without a tenure (during an outage of the hot store), it goes online under a placeholder, `provider@<µs of the
    /// ledger's clock>`, or stays online as it is. The hot store does not know a placeholder, which distinguishes it
    /// from a tenure; [`Ledger::follow_tenures`] replaces it. O(1).
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the tenure belongs to another member. Nothing changed.
    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome>;

    /// Takes a provider offline at its request; with a tenure, only if it is online under that one. O(1).
    ///
    /// # Errors
    /// `NotFound`; nothing changed.
    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange>;

    /// Applies ended tenures of the hot store: takes the providers offline that are online under exactly these tenures.
    /// If several instances try, one of them changes each row and writes its log entry. A provider missing from the
    /// reply had come online again or was offline. `last_offline_at` becomes the end of the tenure, at most now. At most
    /// [`provider::MAX_BATCH`], each tenure once. O(batch).
    ///
    /// Skips rows that another transaction is changing. Spares a provider whose tenure lapsed if the ledger has a
    /// heartbeat of it that the hot store does not, and that is younger than `stale_after`: a process without the hot
    /// store recorded it.
    ///
    /// # Errors
    /// `Invalid` for too many; nothing changed.
    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch>;

    /// Updates tenures after an outage of the hot store: gives another tenure to the providers that are online under
    /// exactly the expected one, and returns their rows, by name. Writes no log entry, because they were online
    /// throughout. Limits and cost as in [`Ledger::offline_ended`].
    ///
    /// # Errors
    /// `Invalid` for too many, or for a pair of tenures of different members; nothing changed.
    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>>;

    /// Records the last heartbeats of providers, and returns how many were new. Never moves one back; ignores unknown
    /// providers; of several times of one provider the latest counts. Changes no version. At most
    /// [`provider::MAX_BATCH`]. One statement, which locks rows in the order of names. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many; nothing changed.
    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64>;

    /// The recorded last heartbeats of these providers, without those that have none. At most [`provider::MAX_BATCH`].
    /// O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many.
    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>>;

    /// Marks rosters whose heartbeats the caller needs in the ledger because it cannot reach the hot store. A mark
    /// lasts `lasts`, or until the end of an earlier one. At most [`provider::MAX_BATCH`]. O(rosters).
    ///
    /// # Errors
    /// `Invalid` for too many; nothing changed.
    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()>;

    /// Records that all heartbeats of a roster in the hot store are in the ledger, and the time since which every
    /// living provider has sent one. O(1).
    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()>;

    /// The last recorded pass; `None` if there was none. O(1).
    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>>;

    /// Lists the available providers: online, active, with room, and fresh if `fresh_since` is given; the least
    /// occupied first, then by name. Cursors are those of [`Candidate::cursor`]. O(page), plus the stale ones passed
    /// over.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>>;

    /// The number of providers by state; `fresh_since` affects only `available`. O(providers).
    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats>;

    /// Reads the log forwards, of one provider or all. An entry appears once all earlier ones are committed or rolled
    /// back, so no reader skips one that is still being written; a long transaction on the same roster delays later
    /// entries. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>>;

    /// Creates an engagement. A retry with the same name returns the existing one in its current state, or a conflict
    /// if that is over or has another provider. O(open engagements of the provider).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider, `Invalid`; nothing changed.
    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome>;

    /// Changes the status of an engagement, its provider, or both, in one step: no reader sees it with both providers
    /// or with none. An unchanged move does nothing; a closed engagement cannot change. See [`Move::expires_at`]. O(open engagements of both
    /// providers).
    ///
    /// # Errors
    /// `NotFound` for an unknown engagement or provider, `Invalid`; nothing changed.
    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome>;

    /// Assigns an engagement to the least occupied candidate with room, of several the one that has been idle longest,
    /// under a lock on its row, so two callers cannot take the last place. If the engagement names a provider, that is the
    /// only candidate. A candidate that another transaction is changing is skipped while another one has room. An open
    /// engagement without a provider gets one; one with a provider is returned as it is. O(candidates passed over).
    ///
    /// # Errors
    /// `Invalid` for too many candidates, `NotFound` for an unknown provider; nothing changed.
    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome>;

    /// Reads an engagement. O(1).
    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>>;

    /// Expires due open engagements, at most `limit` (1..=1000), the longest overdue first. Concurrent instances share
    /// the work. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of range; nothing changed.
    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch>;

    /// Removes closed engagements that last changed more than `age` ago, at most `limit` (1..=1000), the oldest first, and
    /// returns how many. Concurrent instances share the work. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of range; nothing changed.
    async fn remove_closed(&self, roster: &RosterName, age: Duration, limit: u32) -> Result<u64>;

    /// Recounts the open engagements of all providers, and corrects the occupancies that differ. Returns how many: 0
    /// unless engagements were written with triggers off. O(providers and open engagements).
    async fn recount(&self, roster: &RosterName) -> Result<u64>;

    /// The rows that may not have reached the mirror, the oldest version first, at most `limit` (1..=1000). O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of range.
    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>>;

    /// The number of rows that may not have reached the mirror, by roster. One call for all rosters. O(such rows).
    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>>;

    /// Records that the mirror has these rows in these versions. A row that changed again stays dirty. Returns how many
    /// this call cleaned. At most [`provider::MAX_BATCH`]. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many; nothing changed.
    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64>;

    /// Draws a version above all earlier ones, for the tombstones of rows that the ledger lacks. Draw it before reading
    /// the rows to compare: a row created in between is then newer. O(1).
    async fn next_version(&self) -> Result<Version>;
}
