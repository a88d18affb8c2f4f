//! Fences in real sinks: Postgres, Valkey and Redis, and this process, against holders that come too late.

mod guide;
#[cfg(feature = "valkey")]
mod paused;
mod postgres;
mod postgres_rows;
#[cfg(feature = "valkey")]
mod sinks;
mod sql;
mod valkey;
