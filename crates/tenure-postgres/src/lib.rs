//! The ledger of rosters on Postgres 13 or newer.
//!
//! Each step is one function of the schema `tenure`, called by one statement. It is its own transaction and takes one
//! round trip, so no transaction is open while it waits for a client, and it uses no session state. It therefore works
//! behind PgBouncer in transaction mode. Triggers write versions, the outbox, the log and occupancies, so that
//! statements of other programs have the same effects as the steps.
//!
//! Every call has a deadline, from the wait for a connection to the reply, and its statement carries a not-after on the
//! ledger's clock. A statement that outlives its caller is not cancelled: it keeps its connection until the server has
//! replied, and a share of the connections is out of reach of writes. The [`Outcome`](tenure_core::error::Outcome) of an error says what is
//! known about the call.
//!
//! This crate uses the local clock only for deadlines, bounds every queue, and never reads from a standby.

mod application;
mod backoff;
mod call;
mod error;
mod examine;
mod lanes;
mod ledger;
mod migrate;
mod options;
mod planted;
mod pool;
mod rows;
mod running;
mod tls;

pub use application::{Application, Column, Table, TableKind};
pub use ledger::PostgresLedger;
pub use options::PostgresOptions;
