//! A seeded world in which the real library runs: many machines, one store, and everything that goes wrong between them.
//!
//! One thread, no real time, no real chance. Each machine has a clock of its own and a runtime of its own that only the
//! [`world`] drives, so that a process can be stopped, suspended or killed at any instant while the others go on. The
//! store is the reference store behind a [`network`] that delays, loses and cuts; its machine freezes, restarts, loses
//! data, and has a clock that drifts and steps. After every step of the store the [`check`]ers compare what it did with
//! an account of their own.
//!
//! The same seed gives the same history. `docs/simulation.md` says what is tried, and what it has found.

pub mod broken;
pub mod chance;
pub mod check;
pub mod fault;
pub mod history;
pub mod network;
pub mod node;
pub mod node_clock;
pub mod node_store;
pub mod process;
pub mod program;
pub mod server;
pub mod sink;
pub mod step;
pub mod store_clock;
pub mod time;
pub mod wire;
pub mod world;

pub use broken::Broken;
pub use fault::Mix;
pub use history::Keep;
pub use world::{Outcome, Plan, run};
