//! The adoptions on real servers (Valkey, Redis, a cluster), and the migration of a fleet with plain keys.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "real servers run in real time, and a failed expectation fails the test"
)]

mod leases;
mod registry;
mod sessions;
mod targets;
mod world;
