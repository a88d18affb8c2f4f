//! Runs a program only where it is the primary.
//!
//! What to do is decided by the pure machine in [`tenure_core::supervise`]; here are the hands and eyes of it: sources
//! of evidence about leadership ([`leadership`]), and catalogs in which the service is registered ([`catalog`]).

pub mod catalog;
pub mod leadership;
mod off_thread;
mod survive;
