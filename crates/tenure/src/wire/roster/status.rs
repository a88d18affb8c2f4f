//! The status of a daemon's rosters on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_core::id::RosterName;
use tenure_core::ledger::RosterSettings;
use tenure_core::store::Health;

use super::super::{StoreState, ms};
use crate::roster::{BreakerView, RosterStatus, RostersStatus, Sweep, SweepAges};

/// The rosters of a daemon, and the ledger behind them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RostersState {
    /// The ledger.
    pub ledger: StoreState,
    /// Whether the rosters were listed from the ledger since the daemon started.
    pub discovered: bool,
    /// The circuit breaker of ledger fallback reads: `closed`, `open` (no reads) or `half_open`.
    pub breaker: String,
    /// With `open`: time until the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Ledger fallback reads in flight.
    pub fallback_running: u64,
    /// Ledger fallback reads waiting.
    pub fallback_waiting: u64,
    /// The rosters, at most 1,000, sorted by name.
    pub rosters: Vec<RosterState>,
    /// Total number of rosters, including those not listed.
    pub rosters_total: u64,
    /// The keys for provider tokens; absent if providers need no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensState>,
}

impl RostersState {
    /// The most rosters that are listed.
    pub const MAX_LISTED: usize = 1_000;

    /// Builds the status from that of the service.
    #[must_use]
    pub fn new(status: RostersStatus, place: String, tokens: Option<TokensState>) -> Self {
        let (up, reason) = match status.ledger {
            Health::Up => (true, None),
            Health::Down { reason } => (false, Some(reason)),
        };
        let retry_in_ms = match status.breaker {
            BreakerView::Open(wait) => Some(super::super::ms_up(wait)),
            BreakerView::Closed | BreakerView::HalfOpen => None,
        };
        let rosters_total = status.rosters.len() as u64;
        let listed = status.rosters.into_iter().take(Self::MAX_LISTED);
        Self {
            ledger: StoreState {
                place,
                up,
                reason,
                warnings: Vec::new(),
            },
            discovered: status.discovered,
            breaker: status.breaker.as_str().to_owned(),
            retry_in_ms,
            fallback_running: status.fallback_running as u64,
            fallback_waiting: status.fallback_waiting as u64,
            rosters: listed.map(Into::into).collect(),
            rosters_total,
            tokens,
        }
    }
}

/// The status of one roster in this daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterState {
    /// The name of the roster.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub roster: RosterName,
    /// The source of its answers: `mirror`, `ledger` (the mirror is down or behind), or `seeding` (the ledger, while
    /// the mirror is filled).
    pub answers_from: String,
    /// Whether the last call of the mirror failed.
    pub mirror_away: bool,
    /// How long answers have not come from the mirror, if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_for_ms: Option<u64>,
    /// Rows of the ledger that may not have reached the mirror.
    pub dirty: u64,
    /// Differences found by the last reconcile; absent before the first, and where another daemon ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<u64>,
    /// Heartbeats waiting to be written to the ledger.
    pub noted: u64,
    /// The settings in force at this daemon.
    pub settings: RosterSettings,
    /// Time since each sweep last succeeded: `offline`, `heartbeats`, `reconcile`, `expiry`. Absent for a sweep that
    /// never did.
    pub sweeps_age_ms: BTreeMap<String, u64>,
}

impl From<RosterStatus> for RosterState {
    fn from(status: RosterStatus) -> Self {
        let ages = Sweep::ALL.into_iter().filter_map(|sweep| {
            let age = age_of(&status.sweeps, sweep)?;
            Some((sweep.as_str().to_owned(), ms(age)))
        });
        Self {
            answers_from: status.belief.as_str().to_owned(),
            mirror_away: status.away,
            untrusted_for_ms: status.untrusted_for.map(ms),
            dirty: status.dirty,
            divergence: status.divergence,
            noted: status.noted,
            settings: status.settings,
            sweeps_age_ms: ages.collect(),
            roster: status.roster,
        }
    }
}

fn age_of(ages: &SweepAges, sweep: Sweep) -> Option<std::time::Duration> {
    match sweep {
        Sweep::Offline => ages.offline,
        Sweep::Heartbeats => ages.heartbeats,
        Sweep::Reconcile => ages.reconcile,
        Sweep::Expiry => ages.expiry,
    }
}

/// The keys for provider tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokensState {
    /// Number of keys.
    pub keys: u64,
    /// Why the current content of the key file is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
