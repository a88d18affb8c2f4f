//! Real daemons and stores under faults, and checks of what their clients saw.
//!
//! A run is a row of rounds. A round starts a [`World`](world::World), lets [clients](client) act in it while
//! [faults](fault) of a plan happen, ends everything, and then [judges](check) the history: by a linearizability checker
//! for each lease and key, and by invariants over the whole. Rounds are short so that histories stay checkable.
//!
//! It runs in real time on real processes: the same seed gives the same plan of faults, not the same history.
#![allow(clippy::disallowed_methods, reason = "it measures real processes in real time")]
#![allow(clippy::print_stdout, reason = "its output is its result")]

pub mod check;
pub mod client;
pub mod events;
pub mod fault;
pub mod history;
pub mod http;
pub mod member;
pub mod planted;
pub mod random;
pub mod roster;
pub mod round;
pub mod spec;
pub mod world;
