//! Rosters on real servers: what a life leaves behind, what a server refuses, rows in any order, and data that somebody has
//! corrupted by hand.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]

#[path = "rosters/drift.rs"]
mod drift;
#[path = "rosters/fault.rs"]
mod fault;
#[path = "rosters/life.rs"]
mod life;
#[path = "rosters/random.rs"]
mod random;
#[path = "rosters/set_up.rs"]
mod set_up;
#[path = "faults/world.rs"]
mod world;
