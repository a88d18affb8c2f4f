//! The built binary, as people and programs use it: real processes, real signals, real files.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]

mod alerts;
mod join;
mod killed;
mod leases;
mod looking;
mod serve;
mod sessions;
mod support;
mod targets;
mod usage;
