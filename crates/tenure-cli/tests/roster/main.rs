//! `tenure roster`, and a daemon with rosters: the built binary over real processes and files.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(dead_code, reason = "the helpers are those of the other commands as well")]

mod daemon;
mod desk;
#[path = "../example/mod.rs"]
mod example;
mod pairing;
#[path = "../cli/support.rs"]
mod support;
mod usage;
