//! The built binary where callers have to show who they are: tokens, TLS, the log of operators, and secrets that appear
//! nowhere.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]

#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod support;

mod audit;
mod guide;
mod secrets;
mod tls;
mod tokens;
