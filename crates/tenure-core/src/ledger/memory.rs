//! The reference ledger, in memory.
//!
//! `RosterModel` is pure: each step takes the time and the source of versions and returns its result. [`MemoryLedger`]
//! adds a lock and a clock. It is lost with the process, so it is for tests, the simulation and first steps.

mod engagements;
mod ledger;
mod model;

pub use ledger::MemoryLedger;
