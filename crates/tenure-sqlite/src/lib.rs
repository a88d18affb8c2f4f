//! The embedded store: all of Tenure in one SQLite file, owned by one process.
//!
//! Think of a clerk with a ledger and a blackboard. Whatever must never be forgotten goes into the ledger, many entries
//! at one stroke, and nobody is told "done" before the ink is dry: one thread writes, with group commit and a full sync.
//! Who was heard from last is on the blackboard alone: beats touch memory and cost no SQL. After a fire the blackboard is
//! gone, and so everyone gets one full ttl to be heard from again. Reads run on connections of their own and wait for
//! nobody.
//!
//! | file | what it holds |
//! |---|---|
//! | `membership`, `registry`, `lease`, `target`, `session`, `roster`, `event`, `sweep` | one noun each: its steps and its reads |
//! | `store` | opening and closing, the doors to writer and readers |
//! | `ended`, `revision` | the records of ended tenures, and the numbers of what members hold |
//! | `writer`, `books`, `step` | the transaction, its undoing, and what every step begins and ends with |
//! | `live`, `group` | what is in memory: who is alive, and what a group knows about itself |
//! | `reader`, `page` | snapshots and cursors |
//! | `found`, `mark`, `wal`, `recall`, `restore` | whether the file is whole or may have forgotten something |
//! | `file`, `lock`, `holder`, `watch`, `clock`, `examine` | the file, its owner, its place, its time, its health |
//!
//! It refuses to be shared: no second process may open the file (it is told who has it), and nothing but this crate may
//! write to it.

mod books;
mod clock;
mod desk;
mod ended;
mod error;
mod event;
mod examine;
mod file;
mod found;
mod group;
mod holder;
mod lease;
mod ledger;
mod live;
mod lock;
mod mark;
mod membership;
mod page;
mod reader;
mod recall;
mod registry;
mod restore;
mod revision;
mod roster;
mod session;
mod sql;
mod step;
mod store;
mod sweep;
mod target;
mod wal;
mod watch;
mod writer;

pub use ledger::SqliteLedger;
pub use lock::{Owner, owner};
pub use restore::{Restored, restore};
pub use store::SqliteStore;
