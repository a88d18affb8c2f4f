//! Sweeps and the state of a group on the wire.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::brake;
use tenure_core::event::EventId;
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::membership::{EndReason, Holdings};
use tenure_core::settling::GapCause;
use tenure_core::sweep::{self as core, GroupStatus, SweepReport};
use tenure_core::time::{StoreTime, micros};

#[cfg(feature = "openapi")]
use super::membership::HoldingsShape;
use super::{ms, ms_up};

/// `POST …/sweep`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepRequest {
    /// Only tell what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// Lift the brake. Never overrides a grace period.
    #[serde(default)]
    pub force: bool,
    /// Also look for drift between sessions and their index, and repair it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconcile: bool,
    /// A name for the pass, which its events carry; made up when not given. Letters, digits, `.`, `_`, `:`, `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// How long to wait for what becomes releasable in a moment (holdings are left alone for 250 ms after an end), at
    /// most 2,000. 300 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// A brake that is engaged: removal pauses, expiry does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Brake {
    /// When it engaged.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: StoreTime,
    /// When it ends by itself at the latest.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
    /// How many lapsed members are not back.
    pub lapsed: u64,
    /// How many members are present.
    pub present: u64,
}

impl From<brake::Brake> for Brake {
    fn from(brake: brake::Brake) -> Self {
        Self {
            since: brake.since,
            until: brake.until,
            lapsed: brake.lapsed,
            present: brake.present,
        }
    }
}

impl From<Brake> for brake::Brake {
    fn from(brake: Brake) -> Self {
        Self {
            since: brake.since,
            until: brake.until,
            lapsed: brake.lapsed,
            present: brake.present,
        }
    }
}

/// A grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unsettled {
    /// Why: `new`, `silent`, `clock_back`, `data_loss` or `tail_loss`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
    /// Until when everyone has had one full ttl.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
}

/// Holdings removed from one ended tenure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Eviction {
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// How many entries, by registry.
    pub claims: BTreeMap<String, u64>,
    /// How many leases.
    #[serde(default)]
    pub leases: u64,
    /// How many connections of sessions.
    #[serde(default)]
    pub connections: u64,
}

/// What a pass would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Doomed {
    /// Which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Why.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: EndReason,
    /// What it still holds.
    #[cfg_attr(feature = "openapi", schema(value_type = HoldingsShape))]
    pub holdings: Holdings,
    /// Whether the brake holds it back.
    pub braked: bool,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepAnswer {
    /// The name of the pass.
    pub pass: String,
    /// Whether it only looked.
    pub dry_run: bool,
    /// How many tenures lapsed.
    pub ended: u64,
    /// How many entries were removed.
    pub evicted_total: u64,
    /// How many leases were released.
    #[serde(default)]
    pub leases_total: u64,
    /// How many connections of sessions were released.
    #[serde(default)]
    pub connections_total: u64,
    /// How many orphaned sessions were deleted.
    #[serde(default)]
    pub reaped: u64,
    /// Entries of the index of disconnected sessions that belonged to none.
    #[serde(default)]
    pub skipped: u64,
    /// With `reconcile`: what did not fit together and was repaired, by kind.
    #[serde(default)]
    pub repaired: BTreeMap<String, u64>,
    /// With `dry_run`: which sessions would be deleted, at most 1,000.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub orphans: Vec<SessionId>,
    /// What was removed, by tenure.
    pub evicted: Vec<Eviction>,
    /// With `dry_run`: what would go, at most 1,000.
    pub doomed: Vec<Doomed>,
    /// Set when the brake holds something back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub braked: Option<Brake>,
    /// When there will be something to release, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_release_in_ms: Option<u64>,
}

impl SweepAnswer {
    /// Puts the answer together.
    #[must_use]
    pub fn new(pass: String, dry_run: bool, report: SweepReport) -> Self {
        let (evicted_total, leases_total) = (report.evicted_total(), report.leases_total());
        let connections_total = report.connections_total();
        Self {
            pass,
            dry_run,
            ended: report.ended,
            evicted_total,
            leases_total,
            connections_total,
            reaped: report.reaped,
            skipped: report.skipped,
            repaired: report.repaired,
            orphans: report.orphans,
            evicted: report
                .evicted
                .into_iter()
                .map(|e| Eviction {
                    tenure: e.tenure,
                    claims: e.claims,
                    leases: e.leases,
                    connections: e.connections,
                })
                .collect(),
            doomed: report
                .doomed
                .into_iter()
                .map(|d| Doomed {
                    tenure: d.tenure,
                    reason: d.reason,
                    holdings: d.holdings,
                    braked: d.braked,
                })
                .collect(),
            braked: report.braked.map(Into::into),
            next_release_in_ms: report.next_release_in.map(ms_up),
        }
    }
}

impl From<SweepAnswer> for SweepReport {
    fn from(answer: SweepAnswer) -> Self {
        Self {
            ended: answer.ended,
            reaped: answer.reaped,
            skipped: answer.skipped,
            repaired: answer.repaired,
            orphans: answer.orphans,
            evicted: answer
                .evicted
                .into_iter()
                .map(|e| core::Eviction {
                    tenure: e.tenure,
                    claims: e.claims,
                    leases: e.leases,
                    connections: e.connections,
                })
                .collect(),
            doomed: answer
                .doomed
                .into_iter()
                .map(|d| core::Doomed {
                    tenure: d.tenure,
                    reason: d.reason,
                    holdings: d.holdings,
                    braked: d.braked,
                })
                .collect(),
            braked: answer.braked.map(Into::into),
            next_release_in: answer.next_release_in_ms.map(Duration::from_millis),
        }
    }
}

/// The state of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupState {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: Group,
    /// The store's time of this reading.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// Members with a current tenure.
    pub members: u64,
    /// Whether it is past the grace after its last gap.
    pub settled: bool,
    /// Set while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// Set while the brake is engaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<Brake>,
    /// When the store last resumed serving this group after a gap.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub resumed_at: StoreTime,
    /// The longest silence of the store that is no gap.
    pub gap_ms: u64,
    /// The same in microseconds: 5/12 of a ttl is rarely a whole number of milliseconds.
    pub gap_us: u64,
    /// The earliest time at which a member may have lapsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_due: Option<StoreTime>,
    /// The earliest time at which holdings may be released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_release: Option<StoreTime>,
    /// Ended tenures whose holdings are not all released.
    pub releasing: u64,
    /// Leases that somebody holds; those of ended tenures, too, until they are released or taken over.
    #[serde(default)]
    pub leases: u64,
    /// Sessions.
    #[serde(default)]
    pub sessions: u64,
    /// Sessions without a connection, orphans included.
    #[serde(default)]
    pub disconnected: u64,
    /// The earliest time at which a session may have become an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_reap: Option<StoreTime>,
    /// Providers whose tenure has ended and whom the ledger has not followed yet.
    #[serde(default)]
    pub pending_offline: u64,
    /// The earliest time at which the ledger may follow one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_offline: Option<StoreTime>,
    /// The newest event.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_event: EventId,
    /// Since when it has been empty. Never of a group with a roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub empty_since: Option<StoreTime>,
}

impl GroupState {
    /// Puts the state of a group together.
    #[must_use]
    pub fn new(group: Group, status: &GroupStatus) -> Self {
        Self {
            group,
            as_of: status.as_of,
            members: status.members,
            settled: status.unsettled.is_none(),
            unsettled: status.unsettled.map(|u| Unsettled {
                cause: u.cause,
                until: u.until,
            }),
            brake: status.brake.map(Into::into),
            resumed_at: status.resumed_at,
            gap_ms: ms(status.gap),
            gap_us: micros(status.gap),
            next_due: status.next_due,
            next_release: status.next_release,
            releasing: status.releasing,
            leases: status.leases,
            sessions: status.sessions,
            disconnected: status.disconnected,
            next_reap: status.next_reap,
            pending_offline: status.pending_offline,
            next_offline: status.next_offline,
            last_event: status.last_event,
            empty_since: status.empty_since,
        }
    }
}

impl From<GroupState> for GroupStatus {
    fn from(state: GroupState) -> Self {
        Self {
            as_of: state.as_of,
            members: state.members,
            gap: Duration::from_micros(state.gap_us),
            resumed_at: state.resumed_at,
            unsettled: state.unsettled.map(|u| core::Unsettled {
                cause: u.cause,
                until: u.until,
            }),
            brake: state.brake.map(Into::into),
            next_due: state.next_due,
            next_release: state.next_release,
            releasing: state.releasing,
            leases: state.leases,
            sessions: state.sessions,
            disconnected: state.disconnected,
            next_reap: state.next_reap,
            pending_offline: state.pending_offline,
            next_offline: state.next_offline,
            last_event: state.last_event,
            empty_since: state.empty_since,
        }
    }
}
