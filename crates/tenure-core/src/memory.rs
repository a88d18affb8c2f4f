//! The reference store, in memory.
//!
//! It is the model that the other stores are compared with, one reply and one event at a time, and the store of the
//! simulation and the examples. [`GroupModel`] is pure: each step takes `now` and returns its result. [`MemoryStore`]
//! adds a lock and a clock. It keeps nothing across restarts, so `memory:` is for trials.

mod at_once;
mod brake;
mod claims;
mod decide;
mod due;
mod ended;
mod group;
mod holdings;
mod keep;
mod lapses;
mod leases;
mod lives;
mod log;
mod losses;
mod members;
mod offlined;
mod pages;
mod reaper;
mod roster;
mod roster_reads;
pub mod rows;
mod seats;
mod sessions;
mod store;
mod sweep;
mod table;
mod targets;

pub(crate) use decide::Decide;
pub(crate) use due::DueIndex;
pub use group::GroupModel;
pub use store::MemoryStore;

#[cfg(test)]
mod tests;
