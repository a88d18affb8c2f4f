//! The store under faults: servers that die, freeze, fill up, refuse or send garbage, and networks that drop, delay and
//! lose.

mod data;
mod event;
mod lease;
mod network;
mod parts;
mod permission;
mod queue;
mod refusal;
mod server;
mod service;
mod wait;
mod words;
