//! Rosters over real servers and over files: their life, what outages cost, and what many do at once.
#![cfg(all(feature = "postgres", feature = "sqlite", feature = "valkey"))]

mod alone;
mod crowd;
mod default_capacity;
mod drift;
mod hot_away;
mod idle;
mod ledger_away;
mod life;
mod plain_sql;
mod quiet;
mod shut_out;
mod told;
mod world;
