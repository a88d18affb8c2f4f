//! Rosters over HTTP: a real server on a free port, on the reference store and the reference ledger.

mod bad_inputs;
mod client;
mod life;
mod log;
mod server;
mod state;
mod tokens;
