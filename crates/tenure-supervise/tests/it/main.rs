//! The supervisor's adapters against real Consul agents, real FUSE mounts and real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may, and so may what its tests share"
)]

mod consul;
mod litefs;
mod processes;
