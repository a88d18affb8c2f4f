//! Tenure's ledger of rosters on Postgres 13 or newer.
//!
//! Every step is one function of the schema `tenure` in the database, called by one statement: it is a transaction by
//! itself, takes one round trip, leaves no transaction open while it waits for a client, and needs nothing of a session.
//! So it works behind PgBouncer's transaction mode as it is. Versions, the outbox, the log and occupancies are written by
//! triggers, so that statements of other programs are seen like the steps.
//!
//! Every call has a deadline, from the wait for a connection to the answer, and its statement carries the time of the
//! ledger's clock after which it must not take effect. A statement that outlives its caller is cancelled, and its
//! connection goes back to the pool only when the server has answered; else it is thrown away. What became of a call
//! that failed is told by its [`Outcome`](tenure_core::error::Outcome).
//!
//! What this crate refuses: to read a clock of its own machine for anything but deadlines, to queue without bound, and to
//! read from a standby.

mod call;
mod door;
mod error;
mod examine;
mod ledger;
mod migrate;
mod options;
mod pool;
mod rows;
mod tls;

pub use ledger::PostgresLedger;
pub use options::PostgresOptions;
