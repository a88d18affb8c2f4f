//! Tenure's store on Valkey and Redis.

pub mod adopt;

mod address;
mod classify;
pub mod connection;
pub mod reply;
pub mod script;

pub use connection::{Connection, ConnectionOptions};
