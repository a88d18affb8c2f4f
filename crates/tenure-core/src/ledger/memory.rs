//! The reference ledger: everything in memory, every step in plain sight.
//!
//! `RosterModel` is pure: each step takes the moment and the source of versions, and answers at
//! once. [`MemoryLedger`] puts a lock and a clock around it. It keeps nothing across restarts, so it is for tests,
//! simulation and trying things out.

mod engagements;
mod ledger;
mod model;

pub use ledger::MemoryLedger;
