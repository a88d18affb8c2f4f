//! How the rosters of a process stand, for `readyz`, status pages and alerts.

use std::time::Duration;

use tenure_core::id::RosterName;
use tenure_core::ledger::RosterSettings;

/// What this process believes of a roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Belief {
    /// The mirror: all that the ledger has is there.
    Mirror,
    /// The ledger: the mirror is away, or came back and has not caught up yet.
    Ledger,
    /// The ledger: the mirror is there, and was never filled in this life of its data.
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
    /// The ledger follows tenures that ended.
    Offline,
    /// Heartbeats are written down in the ledger.
    Heartbeats,
    /// The mirror is compared with the ledger.
    Reconcile,
    /// Engagements end whose time has come.
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

/// How long ago this process last saw each sweep done well, by itself or by another; `None` for never.
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

/// The breaker of the ledger's fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerView {
    /// The ledger is read.
    Closed,
    /// It does not serve and is left alone for as long as this.
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

/// How one roster stands in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterStatus {
    /// Which.
    pub roster: RosterName,
    /// What is believed.
    pub belief: Belief,
    /// For how long the mirror has not been, if it is not.
    pub untrusted_for: Option<Duration>,
    /// Whether the last call of the mirror failed.
    pub away: bool,
    /// Rows of the ledger that may not have reached the mirror, as last counted.
    pub dirty: u64,
    /// Differences that the last reconcile found; `None` before the first, and when another process did it.
    pub divergence: Option<u64>,
    /// Heartbeats that wait to be written down in the ledger.
    pub noted: u64,
    /// The settings that this process obeys.
    pub settings: RosterSettings,
    /// The sweeps.
    pub sweeps: SweepAges,
}

/// How the rosters of a process stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RostersStatus {
    /// Each that the ledger knows of, by name.
    pub rosters: Vec<RosterStatus>,
    /// Whether the ledger has told which rosters there are since the start.
    pub discovered: bool,
    /// Whether the ledger answers, as it was seen last.
    pub ledger: tenure_core::store::Health,
    /// The breaker of the fallback.
    pub breaker: BreakerView,
    /// Reads of the ledger under way in place of the mirror.
    pub fallback_running: usize,
    /// Those that wait for their turn.
    pub fallback_waiting: usize,
}

impl RostersStatus {
    /// Whether any roster is being filled: answers come, slowly.
    #[must_use]
    pub fn is_seeding(&self) -> bool {
        !self.discovered || self.rosters.iter().any(|roster| roster.belief == Belief::Seeding)
    }
}
