//! The embedded store: all of Tenure in one SQLite file, owned by one process.
//!
//! One thread writes, with group commit and a full sync ([`mod@self`] never answers before its commit); reads run on
//! connections of their own and wait for nobody; beats touch memory alone. After a restart everything acknowledged is
//! there again and everyone who was alive gets one full ttl.
//!
//! | file | what it holds |
//! |---|---|
//! | `membership`, `registry`, `event`, `sweep` | one noun each: its steps and its reads |
//! | `store` | opening and closing, the doors to writer and readers |
//! | `writer`, `books`, `step` | the transaction, its undoing, and what every step begins and ends with |
//! | `live`, `group` | what is in memory: who is alive, and what a group knows about itself |
//! | `reader`, `page` | snapshots and cursors |
//! | `file`, `lock`, `clock`, `examine` | the file, its owner, its time, its health |
//!
//! It refuses to be shared: no second process may open the file (it is told who has it), and nothing but this crate may
//! write to it.

mod books;
mod clock;
mod error;
mod event;
mod examine;
mod file;
mod group;
mod live;
mod lock;
mod membership;
mod page;
mod reader;
mod registry;
mod sql;
mod step;
mod store;
mod sweep;
mod writer;

pub use lock::{Owner, owner};
pub use store::SqliteStore;
