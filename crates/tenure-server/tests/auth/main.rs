//! Who may do what: a real server that asks who is calling, over HTTP and TLS.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(unreachable_pub, reason = "nobody uses a test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait on a server that knows nothing of a test clock"
)]

#[path = "../http/common/mod.rs"]
mod common;
mod matrix;
mod office;
mod often;
mod providers;
mod tls;
mod tokens;
