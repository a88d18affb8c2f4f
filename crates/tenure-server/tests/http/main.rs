//! A real server on a free port, driven over HTTP.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(unreachable_pub, reason = "nobody uses a test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait on a server that knows nothing of a test clock"
)]

mod audit;
mod bad_inputs;
mod browser;
mod client;
mod common;
mod events;
mod health;
mod leases;
mod lifecycle;
mod narrow;
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "../auth/office.rs"]
mod office;
mod openapi;
mod sessions;
mod surface;
