//! The conformance suite over the reference stores.
#![cfg(feature = "conformance")]

mod ledger;
mod memory;
mod middleware;
