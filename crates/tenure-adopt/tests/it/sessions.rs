//! Sessions of other programs, indexed and reaped on real servers with concurrent writers.

mod cluster;
mod compare;
mod faults;
mod health;
mod index;
mod interleavings;
mod reap;
mod undo;
mod world;
