//! Rosters: which providers take work, and which of them have room. The ledger decides, the mirror answers reads.
//!
//! A write commits in the ledger first and is then copied to the mirror, best effort ([`Written::mirrored`]). What did
//! not reach the mirror stays in the ledger's outbox, which every process drains about once a second. Reads come from
//! the mirror while this process trusts it (`trust`), and otherwise from the ledger, behind limits (`fallback`); each
//! answer names its [`Source`]. Liveness alone has the opposite order: the hot store decides that a tenure began or
//! ended, and the ledger follows.
//!
//! [`Rosters`] is the service of one process, [`Roster`] the handle of one roster. Neither knows HTTP or tokens: the
//! caller passes the acting provider and the time at which its credential was issued.

mod answer;
mod engagement;
pub(crate) mod fallback;
mod freshness;
mod handle;
mod heartbeat;
pub(crate) mod hot_store;
mod in_ledger;
pub(crate) mod ledger_watch;
pub(crate) mod mirror;
mod mirror_client;
mod provider;
mod reading;
pub(crate) mod service;
mod settings;
pub(crate) mod state;
mod status;
mod sweeps;
mod sync;
pub(crate) mod trust;

pub use self::answer::{
    Admission, Availability, EngagementAnswer, HeartbeatOutcome, Online, ProviderView, Removal, Reservation, Source,
    Sourced, Written,
};
pub use self::handle::Roster;
pub use self::hot_store::HotStoreStatus;
pub use self::service::Rosters;
pub use self::settings::{MIN_KEPT, RostersSettings};
pub use self::status::{Belief, BreakerView, RosterStatus, RostersStatus, Sweep, SweepAges};
pub use self::sweeps::{EXPIRY, FOLLOW, HEARTBEATS, RECONCILE, SweepIntervals};

#[cfg(test)]
mod tests;
