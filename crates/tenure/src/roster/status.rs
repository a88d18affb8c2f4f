//! The status of the rosters of a process, for `readyz`, status pages and alerts.

use std::time::Duration;

use tenure_core::id::RosterName;
use tenure_core::ledger::RosterSettings;

/// Where a roster's reads come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Belief {
    /// The mirror: it has everything that the ledger has.
    Mirror,
    /// The ledger: the mirror is unreachable, or has not caught up since.
    Ledger,
    /// The ledger: the mirror is reachable, but was not filled since its data was created.
    Seeding,
}

impl Belief {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Ledger => "ledger",
            Self::Seeding => "seeding",
        }
    }
}

/// A periodic task of a roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sweep {
    /// The ledger follows ended tenures.
    Offline,
    /// Heartbeats are recorded in the ledger.
    Heartbeats,
    /// The mirror is compared with the ledger.
    Reconcile,
    /// Engagements past their expiry end.
    Expiry,
}

impl Sweep {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Offline, Self::Heartbeats, Self::Reconcile, Self::Expiry];

    /// The name on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Heartbeats => "heartbeats",
            Self::Reconcile => "reconcile",
            Self::Expiry => "expiry",
        }
    }
}

/// How long ago this or another process completed each sweep; `None` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepAges {
    /// Of [`Sweep::Offline`].
    pub offline: Option<Duration>,
    /// Of [`Sweep::Heartbeats`].
    pub heartbeats: Option<Duration>,
    /// Of [`Sweep::Reconcile`].
    pub reconcile: Option<Duration>,
    /// Of [`Sweep::Expiry`].
    pub expiry: Option<Duration>,
}

/// The circuit breaker of the ledger's fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerView {
    /// The ledger is read.
    Closed,
    /// The ledger does not serve, and is not read for this long.
    Open(Duration),
    /// The next read is a probe.
    HalfOpen,
}

impl BreakerView {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open(_) => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The status of one roster in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterStatus {
    /// The roster's name.
    pub roster: RosterName,
    /// Where its reads come from.
    pub belief: Belief,
    /// How long the mirror has been untrusted, if it is.
    pub untrusted_for: Option<Duration>,
    /// Whether the last call of the mirror failed.
    pub away: bool,
    /// Rows of the ledger that may not have reached the mirror, as last counted.
    pub dirty: u64,
    /// Differences found by the last reconcile; `None` before the first, and when another process made it.
    pub divergence: Option<u64>,
    /// Heartbeats that wait to be recorded in the ledger.
    pub noted: u64,
    /// The settings in effect.
    pub settings: RosterSettings,
    /// The ages of the sweeps.
    pub sweeps: SweepAges,
}

/// The status of the rosters of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RostersStatus {
    /// Each roster that the ledger knows, by name.
    pub rosters: Vec<RosterStatus>,
    /// Whether the ledger has listed its rosters since the start.
    pub discovered: bool,
    /// Whether the ledger answered last time.
    pub ledger: tenure_core::store::Health,
    /// Why this process does not use its hot store: the ledger has another one.
    pub hot_store_refused: Option<String>,
    /// The circuit breaker of the fallback.
    pub breaker: BreakerView,
    /// Ledger reads in flight in place of mirror reads.
    pub fallback_running: usize,
    /// Ledger reads that are queued.
    pub fallback_waiting: usize,
}

impl RostersStatus {
    /// Whether any mirror is being filled: reads are answered, but slowly.
    #[must_use]
    pub fn is_seeding(&self) -> bool {
        !self.discovered || self.rosters.iter().any(|roster| roster.belief == Belief::Seeding)
    }
}
