//! The store under faults: servers that die, freeze, fill up, refuse or lie, and networks that swallow, hold and lose.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]

#[path = "faults/data.rs"]
mod data;
#[path = "faults/lease.rs"]
mod lease;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/parts.rs"]
mod parts;
#[path = "faults/permission.rs"]
mod permission;
#[path = "faults/refusal.rs"]
mod refusal;
#[allow(dead_code, reason = "the tests at scale use all of it")]
#[path = "faults/relay.rs"]
mod relay;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/world.rs"]
mod world;
