//! The types, decisions and traits of Tenure.
//!
//! This crate holds what all other crates share: the names ([`id`]), the two kinds of time ([`clock`], [`time`]) and
//! the estimate of one from the other ([`remote_clock`]), the decisions that need no I/O ([`settling`], [`brake`],
//! [`timing`], [`verdict`]), one store trait per noun ([`membership`], [`registry`], [`lease`], [`target`],
//! [`session`], [`sweep`], [`event`], combined in [`store`]), the durable truth about rosters ([`ledger`]), the errors
//! ([`error`]), and an in-memory reference store ([`memory`]). With the feature `conformance`, it also has the suites
//! that every store and ledger must pass.
//!
//! It depends on no database, no external wire format and no ambient clock: time and chance come through
//! [`clock::Clock`], and a store decides on its own time.

pub mod brake;
pub mod call;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod engine;
pub mod error;
pub mod escape;
pub mod event;
pub mod fleet;
pub mod id;
pub mod lease;
pub mod ledger;
pub mod membership;
pub mod memory;
pub mod millis;
pub mod placement;
pub mod planted;
pub mod pulse;
pub mod recall;
pub mod refusal;
pub mod registry;
pub mod remote_clock;
pub mod roster;
pub mod session;
pub mod settling;
pub mod store;
pub mod supervise;
pub mod sweep;
pub mod target;
pub mod time;
pub mod timeout;
pub mod timing;
pub mod verdict;

pub use clock::Clock;
pub use error::{Error, ErrorKind, Result};
pub use id::{
    Alias, ConnectionId, EngagementId, Group, Key, LeaseName, MemberId, NodeId, ProviderId, RegistryName, RosterName,
    SessionId, TenureId, Term,
};
pub use ledger::Ledger;
pub use store::Store;
pub use time::StoreTime;
