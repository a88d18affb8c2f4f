//! Fences in real sinks: Postgres, Valkey and Redis, and this process, against holders that come too late.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod guide;
#[cfg(feature = "valkey")]
mod paused;
mod postgres;
mod postgres_rows;
#[cfg(feature = "valkey")]
mod sinks;
mod sql;
mod valkey;
