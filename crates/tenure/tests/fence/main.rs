//! Fences in real sinks: Postgres, Valkey and Redis, and this process, against holders that come too late.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod postgres;
mod postgres_rows;
mod sql;
mod valkey;
