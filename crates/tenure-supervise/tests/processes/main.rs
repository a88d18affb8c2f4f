//! A supervisor and its child as real processes: signals, exit codes, groups, orphans, and process 1 of a namespace.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]

mod ends;
mod orphans;
mod readiness;
mod support;
mod tied;
