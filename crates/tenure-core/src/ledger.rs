//! The ledger: the durable truth about rosters, which the mirror in the hot store follows.
//!
//! Writes commit here first; every row has a version, and the mirror takes a row only when its version is newer. What a
//! step changed is in the outbox, written in the same step, until somebody says that the mirror has it. The one
//! exception to the order is liveness: the hot store decides that a tenure ended, and the ledger follows by compare and
//! set on exactly that tenure.
//!
//! Every step is atomic and decides on the ledger's own clock. A step that is asked twice (its reply was lost) changes
//! nothing the second time and answers with the row as it is. Whatever fails with an outcome of
//! [`Unchanged`](crate::error::Outcome::Unchanged) changed nothing; after `Unknown`, ask again.
//!
//! [`memory::MemoryLedger`] is the reference: what the others are compared with, step by step.

pub mod engagement;
pub mod heartbeats;
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
    Candidates, Engagement, EngagementChange, EngagementOutcome, ExpiredBatch, Expiry, Move, NewEngagement,
    ReserveOutcome, Status,
};
pub use self::heartbeats::{HeartbeatMarks, HeartbeatPass};
pub use self::log::{Change, LogEntry, Reason};
pub use self::memory::MemoryLedger;
pub use self::outbox::Dirty;
pub use self::overview::{Overview, RosterView};
pub use self::provider::{
    Candidate, Capacity, EndedTenure, Follow, OnlineOutcome, Provider, ProviderChange, ProviderSpec, ProviderState,
    RemoveOutcome, RosterStats, Version,
};
pub use self::settings::{RosterSettings, SettingsPatch};
use crate::error::{Error, Result};
use crate::id::{EngagementId, ProviderId, RosterName, TenureId};
use crate::store::{Finding, Health, Page, PageRequest};
use crate::time::StoreTime;

/// Refuses a tenure of somebody else.
///
/// # Errors
/// `Invalid`, naming both.
pub fn check_tenure(provider: &ProviderId, tenure: Option<&TenureId>) -> Result<()> {
    match tenure {
        Some(tenure) if tenure.member().as_str() != provider.as_str() => Err(Error::invalid(format!(
            "the tenure {tenure} is not one of the provider {provider}"
        ))),
        _ => Ok(()),
    }
}

/// Refuses too many, and tenures of two members.
///
/// # Errors
/// `Invalid`, with what is wrong.
pub fn check_follows(follows: &[Follow]) -> Result<()> {
    provider::check_batch(follows.len())?;
    match follows.iter().find(|follow| follow.from.member() != follow.to.member()) {
        Some(Follow { from, to }) => Err(Error::invalid(format!(
            "the tenures {from} and {to} are of two members"
        ))),
        None => Ok(()),
    }
}

/// The durable truth about rosters.
///
/// Every method can fail with `Unavailable` (the database is out of reach, only readable, or out of connections; the
/// outcome tells whether the step may have taken effect); this is not said again below. Reading changes nothing.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Where it is, for people: a URL without secrets.
    fn place(&self) -> String;

    /// Whether it answered lately. No I/O.
    fn health(&self) -> Health;

    /// The ledger's clock now, by asking it. The cheapest round trip there is.
    ///
    /// # Errors
    /// None of its own.
    async fn now(&self) -> Result<StoreTime>;

    /// Looks at what could hurt: version, settings, permissions. Never fails; what cannot be looked at is a finding.
    async fn examine(&self) -> Vec<Finding>;

    /// Lets go of connections. Calls after it fail with `Unavailable`.
    async fn close(&self);

    /// The rosters that have settings or ever had a provider, by name. O(rosters).
    ///
    /// # Errors
    /// None of its own.
    async fn rosters(&self) -> Result<Vec<RosterName>>;

    /// How all rosters stand, in one statement: what every process polls, about once a second. O(rosters).
    ///
    /// # Errors
    /// None of its own.
    async fn overview(&self) -> Result<Overview>;

    /// The settings of a roster: the defaults, with [`Version::NONE`], when nothing was ever set. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings>;

    /// Changes settings. Their version rises if they differ, and only then. A new default capacity is in the rows of all
    /// providers without one of their own in the same step. O(1), and O(providers) for the default capacity.
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings>;

    /// Writes a provider down, or changes what is written. A new one is active and offline. O(1).
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange>;

    /// Removes a provider that is offline and has no open engagement, leaving a tombstone in the outbox. Its log and its
    /// past engagements stay. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome>;

    /// One provider; `None` when there is none of that name. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>>;

    /// Lists providers by name, all or those in one state. A page is one moment; pages are not one moment together.
    /// O(page) for all and for the online ones, O(providers) for the rest.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn providers(
        &self,
        roster: &RosterName,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>>;

    /// Lets a provider take work again; it stays offline until it comes by itself. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange>;

    /// Forbids a provider to take work, takes it offline and voids what it was given before (`revoked_before`), in one
    /// step. `was_online` of the answer is the tenure that is to be ended in the hot store. Changes nothing for one that
    /// is deactivated already. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange>;

    /// Takes a provider online under a tenure. Online already under another one, it is from now on under the one with the
    /// higher term, so that answers which come in the wrong order do no harm.
    ///
    /// Without a tenure (the hot store is away) it goes online under a placeholder, `provider@<µs of the ledger's
    /// clock>`, or stays online as it is. The placeholder is told from a tenure by the hot store's not knowing it, and is
    /// replaced by [`Ledger::follow_tenures`]. O(1).
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when the tenure is another member's. Nothing changed.
    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome>;

    /// Takes a provider offline because it asked: only if it is online under this tenure, when one is given. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange>;

    /// Follows the hot store: takes those offline who are online under exactly these tenures, and answers with their
    /// rows, by name. However many instances try, one of them changes each row and writes its log entry; who is not in
    /// the answer had come back, or was offline. `last_offline_at` becomes the end of the tenure, or now when that is
    /// later than now. At most [`provider::MAX_BATCH`]; a tenure is to be named once. Locks in order of names.
    /// O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many: nothing changed.
    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<Vec<Provider>>;

    /// Follows the hot store after it came back: gives those another tenure who are online under exactly the one
    /// expected, and answers with their rows, by name. Nothing is logged: they were online all the time. Limits and cost
    /// as [`Ledger::offline_ended`].
    ///
    /// # Errors
    /// `Invalid` for too many, and when the two tenures of one are not of the same member: nothing changed.
    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>>;

    /// Writes down when providers were heard of last, and answers how many of these were news. Never older than what is
    /// there; unknown providers are passed over; of several times of one provider the latest counts. Changes no version.
    /// At most [`provider::MAX_BATCH`]. One statement, locks in order of names. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many: nothing changed.
    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64>;

    /// When these providers were last heard, as far as it was recorded; those without a record are left out. At most
    /// [`provider::MAX_BATCH`]. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many.
    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>>;

    /// Marks rosters whose heartbeats the caller needs in the ledger because it cannot reach the hot store. A mark stands
    /// for `lasts`, or for longer where an earlier one does. At most [`provider::MAX_BATCH`]. O(rosters named).
    ///
    /// # Errors
    /// `Invalid` for too many: nothing changed.
    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()>;

    /// Notes that every heartbeat that the hot store had of a roster has been recorded, and since when every provider that
    /// is alive there has been heard. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()>;

    /// The last pass that was noted; `None` when there was none. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>>;

    /// Who can take work: online, active, with room, and fresh when `fresh_since` is given; the least occupied first,
    /// then by name. Cursors are those of [`Candidate::cursor`]. O(page), stale ones aside.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>>;

    /// How many are in which state; `fresh_since` is about `available` alone. O(providers).
    ///
    /// # Errors
    /// None of its own.
    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats>;

    /// Reads the log forwards, of one provider or all. An entry is listed once all before it are decided, so that no reader
    /// passes one that is still being written: a long transaction of another program holds back what comes after it.
    /// O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing.
    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>>;

    /// Writes a fact down. Asked again with the same name it answers with what is there, however that stands by now; a
    /// conflict when that has another provider. O(open engagements of the provider).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider, `Invalid`: nothing changed.
    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome>;

    /// Moves an engagement to another status, another provider or both, in one step: nobody reads it with both providers
    /// or with none. Moving it to where it is changes nothing; what is over can be moved nowhere else. O(open engagements
    /// of both providers).
    ///
    /// # Errors
    /// `NotFound` for an unknown engagement or provider, `Invalid`: nothing changed.
    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome>;

    /// Takes a place with the first candidate that has room, under a lock on its row, so that two callers cannot take the
    /// last place; a candidate that somebody else is just changing is passed over as long as another has room. An open
    /// engagement without a provider gets one; one that has a provider is answered as it is. O(candidates passed over).
    ///
    /// # Errors
    /// `Invalid` for too many candidates, or for a new engagement that names a provider: nothing changed.
    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome>;

    /// One engagement. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>>;

    /// Ends open engagements whose time has come, at most `limit` (1..=1000), those first that have waited longest.
    /// Instances that do so at once share the work. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of bounds: nothing changed.
    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch>;

    /// Rows that may not have reached the mirror, the oldest version first, at most `limit` (1..=1000). O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit out of bounds.
    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>>;

    /// How many rows may not have reached the mirror, of each roster that has any. One call for all rosters. O(such rows).
    ///
    /// # Errors
    /// None of its own.
    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>>;

    /// Says that the mirror has these rows in these versions. A row that has changed since stays dirty. Answers how many
    /// are clean by this call. At most [`provider::MAX_BATCH`]. O(batch).
    ///
    /// # Errors
    /// `Invalid` for too many: nothing changed.
    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64>;

    /// A version above all that were given out before: the version of tombstones for what the mirror has and the ledger
    /// does not. Draw it before reading the rows to compare with; a row that is made meanwhile is newer then. O(1).
    ///
    /// # Errors
    /// None of its own.
    async fn next_version(&self) -> Result<Version>;
}
