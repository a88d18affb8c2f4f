//! The supervisor's adapters against real Consul agents, FUSE mounts and processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may, and so may what its tests share"
)]

mod consul;
mod litefs;
mod processes;
