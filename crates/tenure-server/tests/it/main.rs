//! A real server on a free port: over HTTP and TLS, in a browser, and as a store of the conformance suite.
#![allow(
    clippy::unwrap_used,
    reason = "a helper that cannot go on fails the test that called it"
)]
#![allow(unreachable_pub, reason = "a test binary has no users")]
#![allow(
    clippy::disallowed_methods,
    reason = "a real server and a browser know nothing of a test clock"
)]

mod auth;
mod common;
mod conformance;
mod dashboard;
mod http;
mod roster;
mod token_server;
