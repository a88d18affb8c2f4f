//! Supervises a program and runs it only while this node is the primary: leader election by a lease or by LiteFS.
//!
//! The pure state machine in [`tenure_core::supervise`] decides; this crate provides its inputs and carries out its
//! actions: sources of leadership ([`leadership`]), the [`child`] and its [`process`]es, the readiness [`probe`], the
//! service [`catalog`]s, and the event loop that connects them ([`run`]). A [`node`] runs all of it from start to end.

pub mod blocking_thread;
pub mod catalog;
pub mod child;
mod http;
pub mod json_file;
pub mod leadership;
mod member;
pub mod node;
pub mod probe;
pub mod process;
mod restart;
pub mod run;
pub mod signals;
pub mod status;
pub mod terminal;
