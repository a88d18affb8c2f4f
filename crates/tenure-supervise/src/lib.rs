//! Runs a program only where it is the primary.
//!
//! What to do is decided by the pure machine in [`tenure_core::supervise`]; here are the hands and eyes of it: sources
//! of evidence about leadership ([`leadership`]), the [`child`] and its [`process`]es, the [`probe`] that tells when it is
//! ready, catalogs in which the service is registered ([`catalog`]), and the loop that ties them together ([`run`]). A [`node`] is all of
//! it at once, from what it follows to the end.

pub mod catalog;
pub mod child;
mod http;
pub mod leadership;
mod member;
pub mod node;
mod off_thread;
pub mod probe;
pub mod process;
pub mod run;
pub mod signals;
pub mod status;
mod survive;
