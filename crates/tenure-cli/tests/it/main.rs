//! The built binary, the examples and the documents, as people and programs use them.
#![allow(
    clippy::unwrap_used,
    reason = "a helper that cannot go on fails the test that called it"
)]
#![allow(clippy::disallowed_methods, reason = "other processes know nothing of a test clock")]
#![allow(clippy::print_stderr, reason = "measurements and skips must be visible")]

mod adopt;
mod adopt_leases;
mod adopt_sessions;
mod chat;
mod cli;
mod docs;
mod example;
mod foreign;
mod native;
mod operations;
mod outage;
mod polling;
mod readme;
mod roster;
mod run;
mod security;
mod support;
#[cfg(feature = "otel")]
mod traces;
