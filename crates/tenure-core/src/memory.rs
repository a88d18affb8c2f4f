//! The reference store: everything in memory, every step in plain sight.
//!
//! It is the model that the other stores are compared with, one reply and one event at a time, and what simulation and
//! examples run on. [`GroupModel`] is pure: each step takes `now` and answers at once. [`MemoryStore`] puts a lock and a
//! clock around it. It keeps nothing across restarts, so `memory:` is for trying things out.

mod claims;
mod decide;
mod group;
mod leases;
mod log;
mod members;
mod pages;
mod reaper;
mod roster;
mod roster_reads;
mod sessions;
mod store;
mod sweep;
mod targets;

pub(crate) use decide::Decide;
pub use group::GroupModel;
pub use store::MemoryStore;
