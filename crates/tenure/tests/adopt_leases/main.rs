//! A fleet that shares its targets by plain keys moves to Tenure, one instance at a time, and nobody polls twice.
#![cfg(feature = "valkey")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faults;
mod log;
mod old_fleet;
mod order;
mod rolling;
mod targets;
