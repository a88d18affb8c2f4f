//! A real server on a free port, driven over HTTP.
#![allow(unreachable_pub, reason = "nobody uses a test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait on a server that knows nothing of a test clock"
)]

mod common;
mod surface;
