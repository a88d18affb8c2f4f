//! The embedded store: all of Tenure in one SQLite file, owned by one process.
//!
//! What decides is the model in memory ([`tenure_core::engine`]): a step is applied there at once, and answered when its rows
//! are on disk, with group commit and a full sync. Beats touch memory alone and cost no SQL; after a restart every tenure
//! gets one full ttl. Reads are answered from memory too; pages of events come from connections of their own.
//!
//! | file | what it holds |
//! |---|---|
//! | `store`, `disk` | opening and closing; the file as the disk of the engine |
//! | `rows` | rows of the model as rows of the file, one file for each noun |
//! | `event` | the log of a group: appending, deleting, pages |
//! | `repair` | rows that only another program can have written |
//! | `reader` | connections that read |
//! | `found`, `mark`, `wal`, `recall`, `restore` | whether the file is whole or may have forgotten something |
//! | `file`, `open_file`, `lock`, `holder`, `watch`, `examine` | the file, its owner, its place, its health |
//! | `ledger`, `executor`, `writer` | the ledger of rosters in a file of its own, and the thread that writes it |
//!
//! It refuses to be shared: no second process may open the file (the error names the one that has it), and nothing but this
//! crate may write to it.

mod alarm;
mod disk;
mod error;
mod event;
mod examine;
mod executor;
mod file;
mod found;
mod holder;
mod ledger;
mod lock;
mod mark;
mod open_file;
mod reader;
mod recall;
mod repair;
mod restore;
mod rows;
mod sql;
mod store;
mod wal;
mod watch;
mod writer;

pub use ledger::SqliteLedger;
pub use lock::{Owner, owner};
pub use restore::{Restored, restore};
pub use store::SqliteStore;
