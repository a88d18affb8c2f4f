//! Who takes work, and who of them has room: the ledger decides, the mirror answers.
//!
//! Writes commit in the ledger first and reach the mirror after that as well as they can ([`Written::mirrored`]); what
//! did not reach it waits in the ledger's outbox, and every process drains that about once a second. Reads come from the
//! mirror for as long as this process may believe it (`trust`), and from the ledger otherwise, behind a guard
//! (`fallback`); each answer says which it was ([`Source`]). Only on liveness the order is the other way round: the hot
//! store decides that a tenure began or ended, and the ledger follows.
//!
//! [`Rosters`] is the service of one process, [`Roster`] the handle of one roster. It refuses to know anything of HTTP or
//! of tokens: a caller says who acts and when what it showed was issued.

mod answer;
mod engagement;
pub(crate) mod fallback;
mod freshness;
mod handle;
mod heartbeat;
mod in_ledger;
pub(crate) mod ledger_watch;
mod line;
pub(crate) mod mirror;
pub(crate) mod one;
mod provider;
mod reading;
pub(crate) mod service;
mod settings;
mod status;
mod sweeps;
mod sync;
pub(crate) mod trust;

pub use self::answer::{
    Admission, Availability, EngagementAnswer, Heard, Online, ProviderView, Removal, Reservation, Source, Sourced,
    Written,
};
pub use self::handle::Roster;
pub use self::service::Rosters;
pub use self::settings::RostersSettings;
pub use self::status::{Belief, BreakerView, RosterStatus, RostersStatus, Sweep, SweepAges};
pub use self::sweeps::{EXPIRY, FOLLOW, HEARTBEATS, RECONCILE, SweepIntervals};

#[cfg(test)]
mod tests;
