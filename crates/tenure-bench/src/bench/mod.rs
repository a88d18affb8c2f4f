//! One file per benchmark.

pub mod adopt;
pub mod beats_batch;
pub mod beats_http;
pub mod beats_valkey;
pub mod detection;
pub mod evict;
pub mod leases;
pub mod memory;
pub mod orphans;
pub mod peers;
pub mod roster;
pub mod sweepers;
pub mod takeover;
pub mod waiters;
