//! The adoptions on real servers: Valkey, Redis, a cluster; and fleets that move from plain keys.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]

mod leases;
mod registry;
mod sessions;
mod targets;
mod world;
