//! Adopting the registry of other programs, on real servers.
#![allow(clippy::unwrap_used, reason = "a test may, and so may what its tests share")]

mod brake;
mod faults;
mod health;
mod interleavings;
mod removal;
mod setting;
mod world;
