//! Sessions on real servers: what a life leaves behind, what a server refuses, and data that somebody has corrupted by hand.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]

#[path = "sessions/drift.rs"]
mod drift;
#[path = "sessions/fault.rs"]
mod fault;
#[path = "sessions/life.rs"]
mod life;
#[path = "sessions/random.rs"]
mod random;
#[path = "sessions/set_up.rs"]
mod set_up;
#[path = "faults/world.rs"]
mod world;
