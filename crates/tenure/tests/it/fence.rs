//! Fences in real sinks (Postgres, Valkey, Redis and this process) against late writers.

mod guide;
#[cfg(feature = "valkey")]
mod paused;
mod postgres;
mod postgres_rows;
#[cfg(feature = "valkey")]
mod sinks;
mod sql;
mod valkey;
