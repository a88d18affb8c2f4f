//! How the rosters of a daemon stand, on the wire.

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
    /// Whether the ledger has told which rosters there are since the daemon's start.
    pub discovered: bool,
    /// The breaker of the reads that turn to the ledger: `closed`, `open` (it is left alone) or `half_open`.
    pub breaker: String,
    /// With `open`: for how long the ledger is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Reads of the ledger under way in place of the mirror.
    pub fallback_running: u64,
    /// Those that wait for their turn.
    pub fallback_waiting: u64,
    /// The rosters, at most 1,000, in the order of their names.
    pub rosters: Vec<RosterState>,
    /// How many there are, also those that are not listed.
    pub rosters_total: u64,
    /// The keys that tokens of providers are checked with; absent when providers need no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensState>,
}

impl RostersState {
    /// The most rosters that are listed.
    pub const MAX_LISTED: usize = 1_000;

    /// What the service tells, and where its ledger is.
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
            ledger: StoreState { place, up, reason },
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

/// How one roster stands in this daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterState {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub roster: RosterName,
    /// Where its answers come from: the `mirror`, the `ledger` (the mirror is away, or has not caught up), or also the
    /// ledger while the mirror is `seeding`.
    pub answers_from: String,
    /// Whether the last call of the mirror failed.
    pub mirror_away: bool,
    /// For how long answers have not come from the mirror, when they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_for_ms: Option<u64>,
    /// Rows of the ledger that may not have reached the mirror.
    pub dirty: u64,
    /// Differences that the last reconcile found; absent before the first, and where another daemon did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<u64>,
    /// Heartbeats that wait to be written down in the ledger.
    pub noted: u64,
    /// The settings that this daemon obeys.
    pub settings: RosterSettings,
    /// How long ago each sweep was last seen done: `offline`, `heartbeats`, `reconcile`, `expiry`. One that never was is
    /// not there.
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

/// The keys that tokens of providers are checked with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokensState {
    /// How many keys a token may be signed by.
    pub keys: u64,
    /// Why what is in the file of the keys now is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
