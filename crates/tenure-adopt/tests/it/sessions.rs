//! Sessions of other programs, indexed and reaped: on real servers, with whoever else writes there.

mod cluster;
mod compare;
mod faults;
mod health;
mod index;
mod interleavings;
mod reap;
mod undo;
mod world;
