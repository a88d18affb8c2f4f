//! What those who run it use: the bench, the demo, the doctor, the settings, manual pages and completions, as the built
//! binary has them.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(dead_code, reason = "the helpers are those of the other commands as well")]

mod bench;
mod config;
mod demo;
mod doctor;
mod shell;
#[path = "../cli/support.rs"]
mod support;
