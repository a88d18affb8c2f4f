//! Runs the real library in a seeded simulation: many machines, one store, and faults of all of them and of the
//! network.
//!
//! One thread, no real time, no real randomness. Each machine has its own clock and its own runtime, which only the
//! [`world`] drives, so that a process can be stopped, suspended or killed at any instant while the others continue.
//! The store is the reference store behind a [`network`] that delays, loses and cuts. The store's machine freezes,
//! restarts and loses data, and its clock drifts and steps. After every step of the store the [`check`]ers compare its
//! state with their own record.
//!
//! The same seed gives the same history. `docs/simulation.md` lists the faults, the checks and the bugs found.

pub mod board;
pub mod broken;
pub mod chance;
pub mod check;
pub mod fault;
pub mod history;
pub mod ledger;
pub mod network;
pub mod node;
pub mod node_clock;
pub mod node_store;
pub mod parts;
pub mod process;
pub mod program;
pub mod server;
pub mod sink;
pub mod step;
pub mod store_clock;
pub mod time;
pub mod wire;
pub mod world;

pub use broken::BrokenRule;
pub use fault::Mix;
pub use history::HistoryMode;
pub use parts::Parts;
pub use world::{Outcome, Plan, run};
