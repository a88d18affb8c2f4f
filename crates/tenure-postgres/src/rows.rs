//! The ledger's replies as JSON, and their conversion to core types.

use std::time::Duration;

use serde::Deserialize;
use tenure_core::ledger::{
    Change, Dirty, EndedBatch, Engagement, EngagementChange, EngagementOutcome, ExpiredBatch, HeartbeatPass, HotStore,
    LogEntry, OnlineOutcome, Overview, Provider, ProviderChange, Reason, RecordedHotStore, RemoveOutcome,
    ReserveOutcome, RosterSettings, RosterStats, RosterView, Status, Version,
};
use tenure_core::{EngagementId, Error, ErrorKind, ProviderId, Result, RosterName, StoreTime, TenureId};

/// The error for a value that this version never writes. Another program wrote it, or a newer version.
fn unexpected(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the ledger holds something that Tenure did not write",
    )
    .because(what.to_string())
}

fn instant(micros: Option<i64>) -> Option<StoreTime> {
    micros.map(|micros| StoreTime::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// A reply with several items.
#[derive(Deserialize)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}

#[derive(Deserialize)]
pub(crate) struct Count {
    pub(crate) count: u64,
}

#[derive(Deserialize)]
pub(crate) struct NowReply {
    pub(crate) now: u64,
}

#[derive(Deserialize)]
pub(crate) struct DrawnVersion {
    pub(crate) version: u64,
}

/// A reply that contains only the time.
#[derive(Deserialize)]
pub(crate) struct Acknowledgement {}

#[derive(Deserialize)]
pub(crate) struct PassRead {
    pub(crate) pass: Option<PassRow>,
}

#[derive(Deserialize)]
pub(crate) struct PassRow {
    fresh_since: i64,
    age: u64,
}

impl From<PassRow> for HeartbeatPass {
    fn from(row: PassRow) -> Self {
        Self {
            fresh_since: instant(Some(row.fresh_since)).unwrap_or_default(),
            age: Duration::from_micros(row.age),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct HotStoreRead {
    recorded: Option<HotStoreRow>,
}

#[derive(Deserialize)]
struct HotStoreRow {
    id: String,
    place: String,
    confirmed_ago: u64,
}

impl From<HotStoreRead> for Option<RecordedHotStore> {
    fn from(read: HotStoreRead) -> Self {
        let row = read.recorded?;
        Some(RecordedHotStore {
            hot_store: HotStore {
                id: row.id,
                place: row.place,
            },
            confirmed_ago: Duration::from_micros(row.confirmed_ago),
        })
    }
}

#[derive(Deserialize)]
pub(crate) struct HeartbeatRow {
    provider: ProviderId,
    at: i64,
}

impl HeartbeatRow {
    pub(crate) fn into_pair(self) -> (ProviderId, StoreTime) {
        (self.provider, instant(Some(self.at)).unwrap_or_default())
    }
}

#[derive(Deserialize)]
pub(crate) struct ProviderRow {
    provider: ProviderId,
    display_name: Option<String>,
    active: bool,
    online: Option<TenureId>,
    capacity: u32,
    occupancy: u32,
    last_online_at: Option<i64>,
    last_offline_at: Option<i64>,
    last_heartbeat_at: Option<i64>,
    revoked_before: Option<i64>,
    version: u64,
}

impl From<ProviderRow> for Provider {
    fn from(row: ProviderRow) -> Self {
        Self {
            provider: row.provider,
            display_name: row.display_name,
            active: row.active,
            online: row.online,
            capacity: row.capacity,
            occupancy: row.occupancy,
            last_online_at: instant(row.last_online_at),
            last_offline_at: instant(row.last_offline_at),
            last_heartbeat_at: instant(row.last_heartbeat_at),
            revoked_before: instant(row.revoked_before),
            version: Version(row.version),
        }
    }
}

/// Rows of providers.
pub(crate) fn providers(rows: Vec<ProviderRow>) -> Vec<Provider> {
    rows.into_iter().map(Provider::from).collect()
}

#[derive(Deserialize)]
pub(crate) struct EngagementRow {
    engagement: EngagementId,
    provider: Option<ProviderId>,
    status: String,
    created_at: i64,
    changed_at: i64,
    expires_at: Option<i64>,
    active_for: Option<u64>,
    version: u64,
}

impl TryFrom<EngagementRow> for Engagement {
    type Error = Error;
    fn try_from(row: EngagementRow) -> Result<Self> {
        Ok(Self {
            engagement: row.engagement,
            provider: row.provider,
            status: Status::parse(&row.status).ok_or_else(|| unexpected(&row.status))?,
            created_at: instant(Some(row.created_at)).unwrap_or_default(),
            changed_at: instant(Some(row.changed_at)).unwrap_or_default(),
            expires_at: instant(row.expires_at),
            active_for: row.active_for.map(Duration::from_micros),
            version: Version(row.version),
        })
    }
}

#[derive(Deserialize)]
pub(crate) struct EngagementRead {
    pub(crate) engagement: Option<EngagementRow>,
}

#[derive(Deserialize)]
pub(crate) struct SettingsRead {
    settings: Option<RosterSettings>,
}

impl From<SettingsRead> for RosterSettings {
    fn from(read: SettingsRead) -> Self {
        read.settings.unwrap_or_default()
    }
}

#[derive(Deserialize)]
pub(crate) struct OverviewRead {
    now: u64,
    rosters: Vec<RosterRow>,
    wanted: Vec<RosterName>,
}

#[derive(Deserialize)]
struct RosterRow {
    roster: RosterName,
    settings: Option<RosterSettings>,
    dirty: bool,
    next_expiry: Option<i64>,
}

impl From<OverviewRead> for Overview {
    fn from(read: OverviewRead) -> Self {
        let view = |row: RosterRow| {
            let view = RosterView {
                settings: row.settings.unwrap_or_default(),
                is_dirty: row.dirty,
                next_expiry: instant(row.next_expiry),
            };
            (row.roster, view)
        };
        Self {
            as_of: StoreTime::from_micros(read.now),
            rosters: read.rosters.into_iter().map(view).collect(),
            wanted: read.wanted.into_iter().collect(),
        }
    }
}

/// The result of a change or removal of a provider.
#[derive(Deserialize)]
pub(crate) struct ProviderReply {
    outcome: String,
    row: Option<ProviderRow>,
    was_online: Option<TenureId>,
    #[serde(default)]
    changed: bool,
    version: Option<u64>,
}

impl ProviderReply {
    fn row(row: Option<ProviderRow>) -> Result<Provider> {
        row.map(Provider::from)
            .ok_or_else(|| unexpected("an answer without a row"))
    }

    pub(crate) fn change(self) -> Result<ProviderChange> {
        Ok(ProviderChange {
            provider: Self::row(self.row)?,
            changed: self.changed,
            was_online: self.was_online,
        })
    }

    pub(crate) fn online(self) -> Result<OnlineOutcome> {
        match self.outcome.as_str() {
            "done" => self.change().map(OnlineOutcome::Online),
            "deactivated" => Self::row(self.row).map(OnlineOutcome::Deactivated),
            "stale" => Self::row(self.row).map(OnlineOutcome::Stale),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn removal(self) -> Result<RemoveOutcome> {
        match (self.outcome.as_str(), self.version) {
            ("removed", Some(version)) => Ok(RemoveOutcome::Removed(Version(version))),
            ("absent", _) => Ok(RemoveOutcome::Absent),
            ("busy", _) => Self::row(self.row).map(RemoveOutcome::Busy),
            (other, _) => Err(unexpected(other)),
        }
    }
}

/// The result of a change of an engagement, or of a reserve.
#[derive(Deserialize)]
pub(crate) struct EngagementReply {
    outcome: String,
    engagement: Option<EngagementRow>,
    #[serde(default)]
    providers: Vec<ProviderRow>,
    #[serde(default)]
    changed: bool,
}

impl EngagementReply {
    fn row(row: Option<EngagementRow>) -> Result<Engagement> {
        row.ok_or_else(|| unexpected("an answer without a row"))?.try_into()
    }

    fn change(self) -> Result<EngagementChange> {
        Ok(EngagementChange {
            engagement: Self::row(self.engagement)?,
            providers: providers(self.providers),
            changed: self.changed,
        })
    }

    pub(crate) fn outcome(self) -> Result<EngagementOutcome> {
        match self.outcome.as_str() {
            "done" => self.change().map(EngagementOutcome::Done),
            "conflict" => Self::row(self.engagement).map(EngagementOutcome::Conflict),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn reserved(self) -> Result<ReserveOutcome> {
        match self.outcome.as_str() {
            "done" => self.change().map(ReserveOutcome::Reserved),
            "none_available" => Ok(ReserveOutcome::NoneAvailable),
            "conflict" => Self::row(self.engagement).map(ReserveOutcome::Conflict),
            other => Err(unexpected(other)),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ExpiredReply {
    expired: Vec<EngagementRow>,
    providers: Vec<ProviderRow>,
    next: Option<i64>,
}

impl TryFrom<ExpiredReply> for ExpiredBatch {
    type Error = Error;
    fn try_from(answer: ExpiredReply) -> Result<Self> {
        let expired: Result<Vec<Engagement>> = answer.expired.into_iter().map(Engagement::try_from).collect();
        Ok(Self {
            expired: expired?,
            providers: providers(answer.providers),
            next: instant(answer.next),
        })
    }
}

#[derive(Deserialize)]
pub(crate) struct EndedReply {
    offline: Vec<ProviderRow>,
    spared: Vec<ProviderRow>,
    busy: Vec<ProviderId>,
}

impl From<EndedReply> for EndedBatch {
    fn from(reply: EndedReply) -> Self {
        Self {
            offline: providers(reply.offline),
            spared: providers(reply.spared),
            busy: reply.busy,
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct StatsRow {
    online: u64,
    available: u64,
    busy: u64,
    offline: u64,
    deactivated: u64,
    dirty: u64,
}

impl From<StatsRow> for RosterStats {
    fn from(row: StatsRow) -> Self {
        Self {
            online: row.online,
            available: row.available,
            busy: row.busy,
            offline: row.offline,
            deactivated: row.deactivated,
            dirty: row.dirty,
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct LogRow {
    id: u64,
    provider: ProviderId,
    change: String,
    reason: String,
    at: i64,
    version: u64,
}

impl TryFrom<LogRow> for LogEntry {
    type Error = Error;
    fn try_from(row: LogRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            provider: row.provider,
            change: Change::parse(&row.change).ok_or_else(|| unexpected(&row.change))?,
            // Other programs may write their own reasons.
            reason: Reason::parse(&row.reason).unwrap_or(Reason::Edited),
            at: instant(Some(row.at)).unwrap_or_default(),
            version: Version(row.version),
        })
    }
}

#[derive(Deserialize)]
pub(crate) struct DirtyRow {
    provider: ProviderId,
    version: u64,
    since: i64,
    row: Option<ProviderRow>,
}

#[derive(Deserialize)]
pub(crate) struct DirtyCount {
    pub(crate) roster: RosterName,
    pub(crate) count: u64,
}

impl From<DirtyRow> for Dirty {
    fn from(dirty: DirtyRow) -> Self {
        Self {
            provider: dirty.provider,
            version: Version(dirty.version),
            since: instant(Some(dirty.since)).unwrap_or_default(),
            row: dirty.row.map(Provider::from),
        }
    }
}
