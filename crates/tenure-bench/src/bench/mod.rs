//! One file per benchmark.

pub mod beats_http;
pub mod beats_valkey;
