//! Tenure's store on Valkey 8 and Redis 7.
//!
//! Every verb is one Lua script, so its checks and its changes are atomic. The scripts read the server's clock, write
//! the group's tick first, and refuse calls that arrive after their not-after time. The connection fails fast and never
//! replays. Modules follow the nouns of the store contract (membership, registry, event, sweep); the script of a verb
//! is in `scripts/<verb>.lua`.
//!
//! ```no_run
//! # async fn example() -> tenure_core::Result<()> {
//! use tenure_core::clock::SystemClock;
//! use tenure_core::store::StoreOptions;
//! use tenure_valkey::{ConnectionOptions, ValkeyStore};
//!
//! let (options, connection) = (StoreOptions::default(), ConnectionOptions::default());
//! let store = ValkeyStore::open("valkey://127.0.0.1:6379", options, connection, SystemClock::shared()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The crate does not know members' own clocks, other stores or any policy: it executes single steps.

mod address;
mod classify;
pub mod connection;
mod event;
mod examine;
mod keys;
mod lease;
mod list;
mod membership;
mod pages;
#[cfg(debug_assertions)]
mod planted;
mod probe;
mod registry;
mod reply;
mod roster;
mod script;
mod scripts;
mod service;
mod session;
mod store;
mod sweep;
mod target;
mod view;

pub use connection::ConnectionOptions;
pub use store::ValkeyStore;
