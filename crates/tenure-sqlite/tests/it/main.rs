//! The embedded store and ledger on real files.

mod common;
mod conformance;
mod drift;
mod file;
mod lease;
mod ledger;
mod listing;
mod recall;
mod restart;
mod restore;
mod roster;
mod roster_drift;
mod roster_world;
mod session;
mod upgrade;
mod watch;
