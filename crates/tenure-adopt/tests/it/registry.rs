//! Adopting the registry of other programs on real servers.

mod across;
mod brake;
mod faults;
mod health;
mod interleavings;
mod removal;
mod setting;
mod weights;
mod world;
