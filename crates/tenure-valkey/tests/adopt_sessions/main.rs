//! Sessions of other programs, indexed and reaped: on real servers, with whoever else writes there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod compare;
mod faults;
mod health;
mod index;
mod interleavings;
mod reap;
mod undo;
mod world;
