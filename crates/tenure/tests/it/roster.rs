//! Rosters over real servers and over files: lifecycle, outages, and concurrency.
#![cfg(all(feature = "postgres", feature = "sqlite", feature = "valkey"))]

mod alone;
mod crowd;
mod deactivation;
mod default_capacity;
mod drift;
mod hot_away;
mod idle;
mod ledger_away;
mod life;
mod plain_sql;
mod quiet;
mod reconcile_meters;
mod world;
