//! Stores at scale: over TLS, behind sentinels, in a cluster, under the least user, and with replicas that confirm. What is
//! measured is printed (`--nocapture`); only what must hold is asserted.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "what happens to a real server is measured in real time, and an unmet expectation fails the test"
)]
#![allow(clippy::print_stderr, reason = "recovery times are figures, not assertions")]

#[path = "scale/cluster.rs"]
mod cluster;
#[path = "scale/load.rs"]
mod load;
#[path = "faults/relay.rs"]
mod relay;
#[path = "scale/role.rs"]
mod role;
#[path = "scale/sentinel.rs"]
mod sentinel;
#[path = "scale/tls.rs"]
mod tls;
#[path = "scale/wait.rs"]
mod wait;
#[path = "faults/world.rs"]
mod world;
