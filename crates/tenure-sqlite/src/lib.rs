//! The embedded store: all of Tenure in one SQLite file, owned by one process.
//!
//! The model in memory decides ([`tenure_core::engine`]). A step is applied there immediately, and answered when its rows are
//! on disk, with group commit and a full sync. Beats change only memory and cost no SQL; after a restart every ttl starts
//! again. Reads come from memory, too; pages of events come from separate connections.
//!
//! | file | what it holds |
//! |---|---|
//! | `store`, `disk` | opening and closing; the file as the disk of the engine |
//! | `rows` | rows of the model as rows of the file, one file for each noun |
//! | `event` | the log of a group: appending, deleting, pages |
//! | `alarm` | when refused writes are logged |
//! | `repair` | rows that only another program can have written |
//! | `reader` | connections that read |
//! | `found`, `mark`, `wal`, `recall`, `restore` | whether the file is whole or may have forgotten something |
//! | `file`, `open_file`, `lock`, `holder`, `watch`, `examine` | the file, its owner, its place, its health |
//! | `ledger`, `executor`, `writer` | the ledger of rosters in a file of its own, and the thread that writes it |
//!
//! The file is not shared: a second process cannot open it (the error names the owner), and only this crate may write to it.

mod alarm;
mod disk;
mod error;
mod event;
mod examine;
mod executor;
mod file;
mod found;
mod holder;
mod index;
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
