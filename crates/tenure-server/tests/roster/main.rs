//! Rosters over HTTP: a real server on a free port, on the reference store and the reference ledger.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(unreachable_pub, reason = "nobody uses a test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait on a server that knows nothing of a test clock"
)]

mod bad_inputs;
mod client;
#[path = "../http/common/mod.rs"]
mod common;
mod desk;
mod life;
mod state;
mod tokens;
