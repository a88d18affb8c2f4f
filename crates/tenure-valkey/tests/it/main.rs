//! The store on real servers: Valkey, Redis, a cluster, sentinels.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]
#![allow(clippy::print_stderr, reason = "recovery times are figures, not assertions")]

mod clock_back;
mod conformance;
mod faults;
mod relay;
mod rosters;
mod scale;
mod sessions;
mod world;
