//! The reference stores, held to the suite that they define.
#![cfg(feature = "conformance")]

mod around;
mod ledger;
mod memory;
